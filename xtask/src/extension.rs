//! The names that the extension's header declares. The library may add only these names to
//! libpcap's.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::{stage, tree};

/// The functions that pcap/fanout.h declares.
pub(crate) fn functions() -> Result<BTreeSet<String>> {
    let path = tree::root()?
        .join("crates/fanpcap-abi/include")
        .join(stage::HEADER);
    let names = declared(&tree::read(&path)?);
    ensure!(!names.is_empty(), "{} declares no function", path.display());
    Ok(names)
}

/// The names before an opening parenthesis in declarations. A declaration begins at the start of a
/// line.
fn declared(header: &str) -> BTreeSet<String> {
    let code = without_comments(header);
    let declarations = code.lines().filter(|line| {
        line.starts_with(|first: char| first.is_ascii_alphabetic()) && line.contains('(')
    });
    declarations
        .filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back())
        .map(str::to_owned)
        .collect()
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let before = parts.next().unwrap_or_default().to_owned();
    parts
        .filter_map(|part| part.split_once("*/"))
        .fold(before, |code, (_, rest)| code + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_found_and_comments_are_not() {
        let header = "/* see f(1) */\n#define X(1)\nint a(int p);\n/* b(\nint c(); */\nvoid *d(void);\n\tint e();\n";
        let names: Vec<String> = declared(header).into_iter().collect();
        assert_eq!(names, ["a", "d"]);
    }
}
