//! Checks source files by rules for which there is no lint.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::tally::Tally;
use crate::tree;

/// Files and directories that may have unsafe code.
const UNSAFE: [&str; 13] = [
    "crates/fanpcap-linux/",
    "crates/fanpcap-dpdk/",
    "crates/fanpcap-pcap/",
    // Functions of PF_RING's library.
    "crates/fanpcap-pfring/src/functions.rs",
    "crates/fanpcap-pfring/src/ring.rs",
    // Its tests fork.
    "crates/fanpcap-pfring/src/ring/",
    "crates/fanpcap-ring/",
    "crates/fanpcap-abi/",
    // Calls of OneReader and Renewable are unsafe: only the application can guarantee that one
    // thread reads.
    "crates/fanpcap-reader/src/away.rs",
    "crates/fanpcap-reader/src/control.rs",
    "crates/fanpcap-reader/src/reader.rs",
    // The tests look up functions of the system's library by name, and write packets into rings.
    "crates/fanpcap-reader/tests/",
    // A test makes rings.
    "crates/fanpcap-tpacket/tests/",
];
/// Maximum lines of a Rust file.
const LINES: usize = 500;
/// Maximum width of a line with a comment; rustfmt limits code.
const COLUMNS: usize = 100;
/// Arguments of git that list tracked files and new files.
const FILES: [&str; 4] = ["ls-files", "--cached", "--others", "--exclude-standard"];

/// A file's path below the root, and its text.
type Source = (String, String);

pub(crate) fn check(tally: &mut Tally) -> Result<()> {
    let Ok(listing) = tree::output(Command::new("git").args(FILES).current_dir(tree::root()?))
    else {
        tally.skip(
            "source files",
            "this is not a git checkout, or git is not installed",
        );
        return Ok(());
    };
    let sources = read(&listing)?;
    tally.check(
        "opening lines",
        &verdict(&sources, |source| !introduces_itself(source)),
    );
    tally.check(
        "unsafe code",
        &verdict(&sources, is_unsafe_in_the_wrong_place),
    );
    tally.check("files of 500 lines", &verdict(&sources, is_too_long));
    tally.check("comments of 100 columns", &verdict(&sources, is_too_wide));
    Ok(())
}

fn read(listing: &str) -> Result<Vec<Source>> {
    let root = tree::root()?;
    let names = listing.lines().filter(|name| opening(name).is_some());
    names
        // git lists a removed file until the removal is committed.
        .filter(|name| root.join(name).exists())
        .map(|name| Ok((name.to_owned(), tree::read(&root.join(name))?)))
        .collect()
}

fn verdict(sources: &[Source], offends: impl Fn(&Source) -> bool) -> Result<String> {
    let offenders: Vec<&str> = sources
        .iter()
        .filter(|source| offends(source))
        .map(|(name, _)| name.as_str())
        .collect();
    ensure!(offenders.is_empty(), "{}", offenders.join(" "));
    Ok(format!("{} files", sources.len()))
}

/// Whether the first line says what the file is for.
fn introduces_itself((name, text): &Source) -> bool {
    opening(name).is_some_and(|opening| text.starts_with(opening))
}

/// How a source file with this extension must begin; `None` for other files.
fn opening(name: &str) -> Option<&'static str> {
    match Path::new(name).extension().and_then(OsStr::to_str)? {
        "rs" => Some("//! "),
        "c" | "cc" | "h" => Some("/* "),
        "toml" => Some("# "),
        _ => None,
    }
}

fn is_too_long((name, text): &Source) -> bool {
    name.ends_with(".rs") && text.lines().count() > LINES
}

/// Whether a comment is too wide. A line with a web address may be wider.
fn is_too_wide((name, text): &Source) -> bool {
    let mut comments = text
        .lines()
        .filter(|line| line.trim_start().starts_with("//") && !line.contains("://"));
    name.ends_with(".rs") && comments.any(|line| line.chars().count() > COLUMNS)
}

fn is_unsafe_in_the_wrong_place((name, text): &Source) -> bool {
    let allowed = UNSAFE.iter().any(|dir| name.starts_with(dir));
    let mut code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    !allowed && name.ends_with(".rs") && code.any(is_unsafe)
}

fn is_unsafe(line: &str) -> bool {
    let mut words = line
        .split([' ', '(', '='])
        .skip_while(|word| *word != "unsafe")
        .skip(1);
    words
        .next()
        .is_some_and(|word| matches!(word, "{" | "fn" | "impl" | "extern"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_is_known_from_words_about_it() {
        assert!(is_unsafe(concat!("    let x = un", "safe { f() };")));
        assert!(is_unsafe(concat!("un", "safe impl Send for X {}")));
        assert!(!is_unsafe("    say(\"unsafe code\");"));
    }

    #[test]
    fn files_and_comments_have_a_size() {
        let source = |text: String| ("x.rs".to_owned(), text);
        assert!(is_too_long(&source("\n".repeat(LINES + 1))));
        assert!(!is_too_long(&source("\n".repeat(LINES))));
        assert!(is_too_wide(&source(format!("    // {}", "a".repeat(94)))));
        assert!(!is_too_wide(&source(format!("    // {}", "ä".repeat(93)))));
        assert!(!is_too_wide(&source(format!(
            "// https://{}",
            "a".repeat(99)
        ))));
    }

    #[test]
    fn unsafe_code_has_its_places() {
        let source = |name: &str| (name.to_owned(), "//! x\nunsafe fn f() {}\n".to_owned());
        assert!(is_unsafe_in_the_wrong_place(&source(
            "crates/fanpcap/src/lib.rs"
        )));
        assert!(!is_unsafe_in_the_wrong_place(&source(
            "crates/fanpcap-linux/src/lib.rs"
        )));
    }
}
