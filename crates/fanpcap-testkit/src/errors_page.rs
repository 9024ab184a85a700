//! Compares docs/errors.md with the library's messages: a test produces each listed error, each
//! produced error is listed, and the texts are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;

use anyhow::{Context, Result, ensure};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");

/// Compares the page's blocks under the heading `section` with `produced`, texts by the errors'
/// names. With `FANPCAP_BLESS` in the environment, rewrites the blocks instead.
///
/// # Errors
/// The first difference.
pub fn check(section: &str, produced: &BTreeMap<String, String>) -> Result<()> {
    let page = fs::read_to_string(PAGE).context("docs/errors.md")?;
    let blessing = env::var_os("FANPCAP_BLESS").is_some();
    let (listed, rewritten) = blocks(&page, section, |name| produced.get(name).cloned())?;
    for (name, block) in &listed {
        let now = produced
            .get(name)
            .with_context(|| format!("'{name}' is not produced"))?;
        let same = now == block || blessing;
        ensure!(
            same,
            "'{name}' says now (FANPCAP_BLESS=1 rewrites the page):\n{now}\nnot:\n{block}"
        );
    }
    for name in produced.keys() {
        let times = listed.iter().filter(|(listed, _)| listed == name).count();
        ensure!(times == 1, "docs/errors.md lists '{name}' {times} times");
    }
    if blessing {
        fs::write(PAGE, rewritten)?;
    }
    Ok(())
}

/// The names of all errors on the page.
///
/// # Errors
/// The page can't be read.
pub fn names() -> Result<BTreeSet<String>> {
    let page = fs::read_to_string(PAGE).context("docs/errors.md")?;
    let names = page.lines().filter_map(|line| line.strip_prefix("### "));
    Ok(names.map(str::to_owned).collect())
}

/// The errors under a heading, as name and block, and the page with its blocks replaced by `now`.
fn blocks(
    page: &str,
    section: &str,
    now: impl Fn(&str) -> Option<String>,
) -> Result<(Vec<(String, String)>, String)> {
    let heading = format!("\n## {section}\n");
    let (before, rest) = page
        .split_once(&heading)
        .context("no such section in docs/errors.md")?;
    let (body, after) = rest.split_at(rest.find("\n## ").unwrap_or(rest.len()));
    let mut parts = body.split("\n### ");
    let mut rewritten = format!("{before}{heading}{}", parts.next().unwrap_or_default());
    let mut found = Vec::new();
    for part in parts {
        let name = part.lines().next().unwrap_or_default().to_owned();
        let (prose, rest) = part
            .split_once("\n```text\n")
            .with_context(|| name.clone())?;
        let (block, rest) = rest.split_once("\n```\n").with_context(|| name.clone())?;
        let new = now(&name).unwrap_or_else(|| block.to_owned());
        rewritten += &format!("\n### {prose}\n```text\n{new}\n```\n{rest}");
        found.push((name, block.to_owned()));
    }
    Ok((found, rewritten + after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_found_and_rewritten_in_their_section_only() {
        let page = "# E\n\n## A\n\n### x\nWhy.\n\n```text\nold\n```\n\n## B\n\n### x\n\n```text\nold\n```\n";
        let (found, rewritten) = blocks(page, "A", |_| Some("new".to_owned())).unwrap();
        assert_eq!(found, [("x".to_owned(), "old".to_owned())]);
        assert_eq!(rewritten, page.replacen("old", "new", 1));
    }
}
