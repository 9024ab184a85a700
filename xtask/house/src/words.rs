//! Checks that code and documents use the words of docs/glossary.md, and no word that the glossary
//! has replaced.

use std::fs;

use anyhow::{Context, Result};
use proc_macro2::{TokenStream, TokenTree};

use crate::repository;

/// The text and source files.
const FILES: [&str; 7] = ["*.rs", "*.md", "*.c", "*.h", "*.conf", "*.sh", "Makefile"];

/// Words that may not be used anywhere, each with its replacement.
const REPLACED: [(&str, &str); 11] = [
    ("heir", "successor, or who takes over"),
    ("heirs", "successors, or who takes over"),
    ("epitaph", "final counters"),
    ("epitaphs", "final counters"),
    ("locker", "descriptor store"),
    ("dock", "device registry"),
    ("docks", "device registries"),
    ("berth", "group slot"),
    ("berths", "group slots"),
    ("estate", "member's descriptors"),
    ("teller", "counter publisher"),
];

/// Words that may not be part of a type's name, each with the term to use instead.
const NO_TYPES: [(&str, &str); 20] = [
    ("stake", "membership"),
    ("door", "rendezvous"),
    ("knock", "descriptor request"),
    ("ground", "kernel operations"),
    ("company", "group tasks"),
    ("turn", "guard"),
    ("leg", "device of several"),
    ("entrant", "join request"),
    ("mourner", "who takes over"),
    ("desk", "loop"),
    ("stance", "role"),
    ("tenure", "topology history"),
    ("twins", "deduplicator"),
    ("sight", "update"),
    ("chair", "host"),
    ("remark", "notice"),
    ("receipts", "acknowledgements"),
    ("shortfall", "missing packets"),
    ("outlet", "output"),
    ("blow", "fault"),
];

/// The files with the code of clusters.
const CLUSTERS: [&str; 8] = [
    "crates/fanpcap-cluster/",
    "crates/fanpcap-clusterd/",
    "crates/fanpcap-etcd/",
    "xtask/demo-cluster/",
    "docs/cluster.md",
    "docs/decisions/0030-changes-of-a-clusters-topology.md",
    "fuzz/fuzz_targets/analyzer.rs",
    "fuzz/fuzz_targets/topology.rs",
];

/// Words that may not be used in these files, each with its replacement. Other files may use them.
const NOT_IN_CLUSTERS: [(&str, &str); 11] = [
    ("wish", "change by the operator"),
    ("wishes", "desired state"),
    ("seat", "entry of a node"),
    ("seats", "nodes of a topology"),
    ("witness", "observer"),
    ("witnesses", "observers"),
    ("tenure", "topology history"),
    ("twin", "duplicate"),
    ("twins", "duplicates"),
    ("desk", "analyzer loop"),
    ("stance", "role"),
];

/// Keys of JSON that contain a replaced word. They stay, because programs of users read them.
const KEYS: [&str; 2] = ["heir_slot", "\"heirs\""];

/// Finds the words in texts and identifiers that the glossary has replaced; returns each with its
/// place.
///
/// # Errors
/// The repository's files can't be listed or read.
pub(crate) fn replaced() -> Result<Vec<String>> {
    let root = repository::root();
    let mut found = Vec::new();
    for path in repository::files(&FILES)? {
        let name = path.to_string_lossy().into_owned();
        // This file is not checked: it lists all replaced words.
        if name.ends_with("house/src/words.rs") {
            continue;
        }
        let is_of_clusters = CLUSTERS.iter().any(|it| name.starts_with(it));
        let others = if is_of_clusters {
            &NOT_IN_CLUSTERS[..]
        } else {
            &[]
        };
        let list = [&REPLACED, others].concat();
        let text = fs::read_to_string(root.join(&path)).with_context(|| name.clone())?;
        for (number, line) in text.lines().enumerate() {
            let line = KEYS
                .iter()
                .fold(line.to_owned(), |line, key| line.replace(key, ""));
            let words = line.split(|letter: char| !letter.is_ascii_alphabetic());
            let words = words.map(str::to_ascii_lowercase);
            let at = format!("{name}:{}", number + 1);
            found.extend(words.filter_map(|word| said(&list, &word, &at)));
        }
        if name.ends_with(".rs") {
            let tokens: TokenStream = text
                .parse()
                .map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
            in_types(tokens, &name, &mut found);
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn said(words: &[(&str, &str)], word: &str, at: &str) -> Option<String> {
    let (_, better) = words.iter().find(|(it, _)| *it == word)?;
    Some(format!("{at}: '{word}' is '{better}'"))
}

/// Adds the replaced words in names of types. A type's name begins with a capital letter, and has
/// small letters, unlike a constant's name.
fn in_types(tokens: TokenStream, name: &str, found: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => in_types(group.stream(), name, found),
            TokenTree::Ident(ident) => {
                let text = ident.to_string();
                let words = words_of_type(&text);
                let at = format!("{name}: {text}");
                let both = words.iter().filter_map(|word| {
                    said(&NO_TYPES, word, &at).or_else(|| said(&REPLACED, word, &at))
                });
                found.extend(both);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// The words of a type's name, in small letters. Empty for other identifiers.
fn words_of_type(name: &str) -> Vec<String> {
    let is_type = name.starts_with(|it: char| it.is_ascii_uppercase())
        && name.contains(|it: char| it.is_ascii_lowercase());
    if !is_type {
        return Vec::new();
    }
    let mut words: Vec<String> = Vec::new();
    for letter in name.chars() {
        match words.last_mut() {
            Some(word) if !letter.is_ascii_uppercase() => word.push(letter),
            _ => words.push(letter.to_ascii_lowercase().to_string()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_taken_apart_and_others_are_not() {
        assert_eq!(words_of_type("GroupGuard"), ["group", "guard"]);
        assert!(words_of_type("CACHE_LINE").is_empty() && words_of_type("turn").is_empty());
    }

    #[test]
    fn a_metaphor_is_found_in_a_type_and_not_beside() {
        let mut found = Vec::new();
        let tokens: TokenStream = "struct AtDock; fn docked(leg: Company) {}".parse().unwrap();
        in_types(tokens, "it.rs", &mut found);
        assert_eq!(found.len(), 2, "{found:?}");
    }
}
