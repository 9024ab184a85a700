//! Compares docs/errors.md with the library's messages. A test must produce each listed error, each
//! produced error must be listed, and the texts must be equal.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;

use anyhow::{Context, Result, ensure};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");

/// Compares the page's blocks under the heading `section` with `produced`, which maps errors' names
/// to their texts. With `FANPCAP_BLESS` in the environment, rewrites the blocks instead.
///
/// # Errors
/// The page differs from `produced`; the error has the first difference.
pub fn check(section: &str, produced: &BTreeMap<String, String>) -> Result<()> {
    let page = fs::read_to_string(PAGE).context("docs/errors.md")?;
    let blessing = env::var_os("FANPCAP_BLESS").is_some();
    let shown = |name: &str| produced.get(name).map(|text| wrapped(text));
    let (listed, rewritten) = blocks(&page, section, shown)?;
    for (name, block) in &listed {
        let now = shown(name).with_context(|| format!("no test has produced '{name}'"))?;
        let same = now == *block || blessing;
        ensure!(
            same,
            "'{name}' is now (FANPCAP_BLESS=1 rewrites the page):\n{now}\nthe page has:\n{block}"
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

/// Columns of the page.
const COLUMNS: usize = 100;
/// The prefix of a continuation line.
const INDENT: &str = "    ";

/// A text whose long lines are continued in indented lines. A line above a line of `^` is not
/// broken, because the `^` marks a column of that line.
fn wrapped(text: &str) -> String {
    let mut lines = text.lines().peekable();
    let mut whole: Vec<String> = Vec::new();
    while let Some(line) = lines.next() {
        let is_marked = lines
            .peek()
            .is_some_and(|next| next.trim_start().starts_with('^'));
        match is_marked {
            true => whole.push(line.to_owned()),
            false => whole.extend(filled(line)),
        }
    }
    whole.join("\n")
}

/// Breaks a line into lines of at most [`COLUMNS`] characters.
fn filled(line: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_inclusive(' ') {
        let last = lines.last().map_or(0, |it| it.chars().count());
        if last > INDENT.len() && last + word.trim_end().chars().count() > COLUMNS {
            lines.push(INDENT.to_owned());
        }
        lines.iter_mut().rev().take(1).for_each(|it| *it += word);
    }
    lines.iter().map(|it| it.trim_end().to_owned()).collect()
}

/// Returns the errors under a heading, each with its name and block. Also returns the page in which
/// each block is replaced by the text that `now` returns for the error's name.
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
    fn long_lines_go_on_but_those_that_are_marked() {
        let words = "word ".repeat(30);
        let long = words.trim_end();
        let text = format!("{long}\nPCAP_FANOUT={long}\n            ^\nend");
        let shown = wrapped(&text);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 5, "{shown}");
        assert!(lines[0].len() <= COLUMNS && lines[1].starts_with("    word "));
        assert_eq!(format!("{} {}", lines[0], lines[1].trim_start()), long);
        assert_eq!(lines[2], format!("PCAP_FANOUT={long}"));
        assert_eq!(wrapped("short\n  and\n  ^"), "short\n  and\n  ^");
    }

    #[test]
    fn blocks_are_found_and_rewritten_in_their_section_only() {
        let page = "# E\n\n## A\n\n### x\nWhy.\n\n```text\nold\n```\n\n## B\n\n### x\n\n```text\nold\n```\n";
        let (found, rewritten) = blocks(page, "A", |_| Some("new".to_owned())).unwrap();
        assert_eq!(found, [("x".to_owned(), "old".to_owned())]);
        assert_eq!(rewritten, page.replacen("old", "new", 1));
    }
}
