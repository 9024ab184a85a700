//! The order of the house: a module uses modules declared before it, a crate uses crates listed
//! before it. Arrows that go the other way are circles, or become some.

mod modules;
mod arrows;
mod crates;

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};

use crate::tally::Tally;
use crate::tree;

/// Arrows that still go the wrong way, one a line: `CRATE MODULE -> MODULE`, or `CRATE -> CRATE`. The
/// list only shrinks: a line whose arrow is gone fails the check.
const EXCEPTIONS: &str = "xtask/src/house/exceptions";

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
    let known = exceptions()?;
    let new: Vec<&String> = found.difference(&known).collect();
    ensure!(
        new.is_empty(),
        "these use what is declared later; declare that first, or cut the circle: {new:#?}"
    );
    let gone: Vec<&String> = known.difference(&found).collect();
    ensure!(gone.is_empty(), "remove from {EXCEPTIONS}: {gone:#?}");
    let crates = members.len();
    Ok(format!(
        "{crates} crates, {files} files, {} exceptions",
        known.len()
    ))
}

fn exceptions() -> Result<BTreeSet<String>> {
    let path = tree::root()?.join(EXCEPTIONS);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}
