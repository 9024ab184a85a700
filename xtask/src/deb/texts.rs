//! Makes the package's changelog and copyright files from the tree's CHANGELOG.md and licences.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Package, licenses};
use crate::{stage, tree};

/// Width of the changelog's lines.
const WIDTH: usize = 76;

/// The directory of a package's texts.
pub(super) fn directory(name: &str) -> Result<PathBuf> {
    Ok(tree::root()?.join("packaging").join(name))
}

fn read(path: &str) -> Result<String> {
    tree::read(&tree::root()?.join(path))
}

/// A text with our licence in its open places.
pub(super) fn with_license(path: &str) -> Result<String> {
    let license = read("LICENSE")?;
    let (head, terms) = license.split_once("\n\n").context("LICENSE's first part")?;
    let holder = head.lines().next().unwrap_or_default();
    Ok(read(path)?
        .replace("@COPYRIGHT@", holder.trim_start_matches("Copyright (c) "))
        .replace("@LICENSE@", &licenses::indented(terms.trim_end())))
}

/// Our licence, and the licences of the crates that are linked in.
pub(super) fn copyright() -> Result<String> {
    let crates = crates()?;
    let list: Vec<String> = crates.iter().map(|line| format!("  {line}")).collect();
    let names = crates.iter().filter_map(|line| line.split_once(": "));
    let names: Vec<String> = names.map(|(name, _)| name.to_owned()).collect();
    Ok(with_license("packaging/debian/copyright.in")?
        .replace("@CRATES@", &list.join("\n"))
        .replace("@TEXTS@", &licenses::paragraphs(&names)?))
}

/// The linked crates of other projects, a line each: `libc 0.2.1: MIT OR Apache-2.0`.
fn crates() -> Result<Vec<String>> {
    let mut cargo = tree::cargo(&["tree", "--edges", "normal", "--prefix", "none"])?;
    cargo.args(stage::PACKAGES.iter().flat_map(|package| ["-p", package]));
    let said = tree::output(cargo.args(["--no-dedupe", "--format", "{p}: {l}"]))?;
    // cargo adds a remark in brackets to our own crates and to procedural macros.
    let mut lines: Vec<String> = said
        .lines()
        .filter(|line| !line.is_empty() && !line.contains('('))
        .map(|line| line.replacen(" v", " ", 1))
        .collect();
    lines.sort();
    lines.dedup();
    Ok(lines)
}

/// The newest section of CHANGELOG.md in Debian's format, for the source package `source`.
pub(super) fn changelog(source: &str, package: &Package) -> Result<String> {
    let epoch = format!("@{}", package.epoch);
    let mut date = Command::new("date");
    date.args(["-u", "-R", "-d", &epoch]).env("LC_ALL", "C");
    let date = tree::output(&mut date)?;
    let items = items(&read("CHANGELOG.md")?);
    let items: Vec<String> = items.iter().map(|item| wrapped(item)).collect();
    Ok(format!(
        "{source} ({}) unstable; urgency=medium\n\n{}\n\n -- {}  {}\n",
        package.version,
        items.join("\n"),
        package.maintainer,
        date.trim()
    ))
}

/// The items of the first section, each on one line. Headings are left out, because Debian's
/// changelogs have no headings.
fn items(changelog: &str) -> Vec<String> {
    let section = changelog.split("\n## ").nth(1).unwrap_or_default();
    let mut items: Vec<String> = Vec::new();
    let lines = section.lines().skip(1);
    for line in lines.filter(|line| !line.starts_with('#')) {
        if let Some(item) = line.strip_prefix("* ") {
            items.push(item.to_owned());
        } else if let (Some(item), false) = (items.last_mut(), line.trim().is_empty()) {
            item.push(' ');
            item.push_str(line.trim());
        }
    }
    items
}

fn wrapped(item: &str) -> String {
    let mut lines = vec!["  *".to_owned()];
    for word in item.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line + 1 + word.chars().count() > WIDTH {
            lines.push("   ".to_owned());
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_section_becomes_items() {
        let text = "# Changelog\n\n## Unreleased\n\n### Part\n\n* One\n  and more.\n\n### Other\n\n* Two.\n\n## 0.1\n\n* Old.\n";
        assert_eq!(items(text), ["One and more.", "Two."]);
    }

    #[test]
    fn long_items_are_broken_and_aligned() {
        let long = "word ".repeat(40);
        let text = wrapped(&long);
        assert!(text.starts_with("  * word"));
        assert!(text.lines().count() > 1);
        assert!(
            text.lines()
                .skip(1)
                .all(|line| line.starts_with("    word"))
        );
        assert!(text.lines().all(|line| line.len() <= WIDTH));
    }

    #[test]
    fn the_licence_and_its_holder_are_in_the_copyright() {
        let text = copyright().unwrap();
        assert!(text.contains("the fanpcap authors\nLicense: BSD-3-Clause"));
        assert!(text.contains(" .\n THIS SOFTWARE IS PROVIDED"));
        assert!(text.contains("\n  libc 0.2"), "{text}");
        let is_open = |word: &str| text.contains(&format!("@{word}@"));
        assert!(
            !["CRATES", "COPYRIGHT", "LICENSE", "TEXTS"]
                .into_iter()
                .any(is_open)
        );
        assert!(!text.contains("crates/"), "{text}");
    }

    #[test]
    fn every_crate_comes_with_its_licence() {
        let text = copyright().unwrap();
        let crates = crates().unwrap();
        assert!(crates.len() > 20);
        for line in crates {
            let (name, _) = line.split_once(": ").unwrap();
            let file = format!("{}/*", name.replace(' ', "-"));
            assert!(text.contains(&file), "{file}");
        }
        let notice = "\n Copyright (c) The Rust Project Developers";
        assert!(
            text.contains(notice) || text.contains("Copyright (c) 2014-"),
            "{text}"
        );
        let terms = text.matches("\n Permission is hereby granted").count();
        assert!(terms > 5, "{terms}");
    }
}
