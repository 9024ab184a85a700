//! Checks that links between documents lead somewhere: to a file of the repository, and to one of
//! its headings.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use crate::repository;

/// The links to files and headings that do not exist, each with its document.
///
/// # Errors
/// The repository can't be read.
pub(crate) fn broken() -> Result<Vec<String>> {
    let root = repository::root();
    let mut documents = BTreeMap::new();
    for name in repository::files(&["*.md"])? {
        let path = root.join(&name);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        documents.insert(name, text);
    }
    let mut found = Vec::new();
    for (name, text) in &documents {
        for link in links(text) {
            if let Some(why) = judge(&root, &documents, name, link) {
                found.push(format!("{}: {link}: {why}", name.display()));
            }
        }
    }
    Ok(found)
}

/// Why a link of a document leads nowhere; `None` for a link that does, and for one to another
/// site.
fn judge(
    root: &Path,
    documents: &BTreeMap<PathBuf, String>,
    name: &Path,
    link: &str,
) -> Option<&'static str> {
    if link.contains("://") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => name.to_owned(),
        _ => resolved(&name.with_file_name(path)),
    };
    if !root.join(&target).exists() {
        return Some("no such file");
    }
    let text = documents.get(&target).filter(|_| !anchor.is_empty())?;
    let is_there = anchors(text).iter().any(|it| it == anchor);
    (!is_there).then_some("no such heading")
}

/// A path without `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = resolved.pop(),
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => resolved.push(part),
        }
    }
    resolved
}

/// The targets of a document's links: what is in parentheses behind `]`.
fn links(text: &str) -> Vec<&str> {
    let prose = prose(text);
    let begins = prose.match_indices("](").map(|(at, _)| at + 2);
    let target = |at: usize| prose[at..].split_once(')').map(|(target, _)| target.len());
    // Slices of the document itself, as `prose` keeps all positions.
    begins
        .filter_map(|at| Some(&text[at..at + target(at)?]))
        .collect()
}

/// The text with blanks in the place of code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence || line.starts_with("    ") {
            prose.extend(line.chars().flat_map(blanks));
            continue;
        }
        prose.push_str(line);
    }
    let mut is_span = false;
    let blank = |character: char| {
        is_span ^= character == '`';
        if is_span {
            blanks(character).collect::<String>()
        } else {
            character.to_string()
        }
    };
    prose.chars().map(blank).collect()
}

/// As many blanks as the character has bytes.
fn blanks(character: char) -> impl Iterator<Item = char> {
    std::iter::repeat_n(' ', character.len_utf8())
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        is_code ^= line.starts_with("```");
        let heading = line.trim_start_matches('#');
        if is_code || heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let kept = |character: &char| character.is_alphanumeric() || " -_".contains(*character);
        let name: String = heading.trim().to_lowercase().chars().filter(kept).collect();
        let name = name.replace(' ', "-");
        let numbered = (1..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        let free = names.find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# What `flow` can't\n\n[a](b.md#c-d)\n[e\nf](../g) `[no](h)`\n\n    [no](i)\n\n\
        ```text\n# no\n[no](j)\n```\n\n## Twice\n## Twice\n";

    #[test]
    fn links_in_code_are_no_links() {
        assert_eq!(links(TEXT), ["b.md#c-d", "../g"]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        assert_eq!(anchors(TEXT), ["what-flow-cant", "twice", "twice-1"]);
    }

    #[test]
    fn a_link_without_a_target_is_found() {
        let documents = BTreeMap::from([
            (PathBuf::from("docs/a.md"), "[b](b.md)".to_owned()),
            (PathBuf::from("Cargo.toml"), String::new()),
        ]);
        let root = repository::root();
        let judge = |link| judge(&root, &documents, Path::new("docs/a.md"), link);
        assert_eq!(judge("no-such.md"), Some("no such file"));
        assert_eq!(judge("../Cargo.toml#nowhere"), Some("no such heading"));
        assert_eq!(judge("../Cargo.toml"), None);
        assert_eq!(judge("https://example.org/x"), None);
    }
}
