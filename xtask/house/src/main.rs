//! Checks the order of modules and crates: a module uses modules declared before it, a crate uses
//! crates listed before it. A use in the other direction (a backward arrow) is part of a cycle, or
//! may become part of one. Checks that crates that serve every engine depend on no engine. Also
//! checks the words of code and documents, and the links between documents.

#![allow(
    clippy::print_stdout,
    reason = "a command's output is for the terminal"
)]

mod modules;
mod arrows;
mod crates;
mod repository;
mod words;
mod links;

use anyhow::{Result, ensure};

fn main() -> Result<()> {
    let members = crates::members()?;
    let mut found = crates::backward(&members);
    let mut files = 0;
    for member in &members {
        for entry in &member.entries {
            let tree = modules::Tree::read(entry)?;
            files += tree.0.len();
            let backward = arrows::backward(&tree).into_iter();
            found.extend(backward.map(|arrow| format!("{} {arrow}", member.name)));
        }
    }
    ensure!(
        found.is_empty(),
        "these use code that is declared later; declare that first, or remove the cycle: {found:#?}"
    );
    let bound = crates::bound_to_an_engine(&members);
    ensure!(
        bound.is_empty(),
        "these crates serve every engine, so they may not depend on one: {bound:#?}"
    );
    let replaced = words::replaced()?;
    ensure!(
        replaced.is_empty(),
        "use the words of docs/glossary.md instead of these: {replaced:#?}"
    );
    let broken = links::broken()?;
    ensure!(
        broken.is_empty(),
        "these links between documents lead nowhere: {broken:#?}"
    );
    let crates = members.len();
    println!("{crates} crates, {files} files");
    Ok(())
}
