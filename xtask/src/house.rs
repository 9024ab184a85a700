//! Checks the order of modules and crates: a module uses modules declared before it, a crate uses
//! crates listed before it. A backward arrow is part of a cycle, or may become one.

mod modules;
mod arrows;
mod crates;

use anyhow::{Result, ensure};

use crate::tally::Tally;

pub(crate) fn check(tally: &mut Tally) {
    tally.check("order of crates and modules", &in_order());
}

fn in_order() -> Result<String> {
    let members = crates::members()?;
    let mut found = crates::backward(&members);
    let mut files = 0;
    for member in &members {
        for entry in &member.entries {
            let tree = modules::Tree::read(entry)?;
            files += tree.len();
            let backward = arrows::backward(&tree).into_iter();
            found.extend(backward.map(|arrow| format!("{} {arrow}", member.name)));
        }
    }
    ensure!(
        found.is_empty(),
        "these use what is declared later; declare that first, or cut the circle: {found:#?}"
    );
    let crates = members.len();
    Ok(format!("{crates} crates, {files} files"))
}
