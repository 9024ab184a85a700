//! Removes the files and directories that `make install` made.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{stage, tree};

/// The list of installed paths, below the prefix. A directory's line ends with a slash.
const LIST: &str = "share/fanpcap/installed";
/// The file that `fanpcap enable --system` writes.
const ENABLED: &str = "/etc/ld.so.conf.d/00-fanpcap.conf";

/// Removes the files installed below `prefix`, inside the directory that DESTDIR names, if it is
/// set.
pub(crate) fn run(prefix: &str) -> Result<()> {
    let target = tree::destination(prefix)?;
    let list = target.join(LIST);
    let text = fs::read_to_string(&list).with_context(|| {
        let (list, target) = (list.display(), target.display());
        format!("reading {list}, which `make install` writes: nothing is installed in {target}")
    })?;
    if env::var("DESTDIR").unwrap_or_default().is_empty() {
        disable(prefix)?;
    }
    // Files are removed before their directories.
    let mut entries: Vec<&str> = text.lines().collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.len()));
    entries.sort_by_key(|entry| entry.ends_with('/'));
    for entry in entries {
        remove(&target, entry)?;
    }
    println!("removed what was installed in {}", target.display());
    Ok(())
}

/// Runs `fanpcap disable` before the library is removed, so that the loader no longer looks for it.
fn disable(prefix: &str) -> Result<()> {
    let enabled = fs::read_to_string(ENABLED).unwrap_or_default();
    if !names_library_below(&enabled, prefix) {
        return Ok(());
    }
    let command = Path::new(prefix).join("bin").join(stage::COMMAND);
    tree::run(Command::new(command).args(["disable", "--system"]))
        .context("every program of this machine still loads the library; nothing was removed")
}

fn names_library_below(enabled: &str, prefix: &str) -> bool {
    let mut lines = enabled.lines();
    // Compares components, because PREFIX may end with a slash.
    lines.any(|line| Path::new(line).starts_with(prefix))
}

fn remove(target: &Path, entry: &str) -> Result<()> {
    let is_inside = Path::new(entry)
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    ensure!(is_inside, "{entry:?} in {LIST} is outside of the prefix");
    let path = target.join(entry);
    let done = if entry.ends_with('/') {
        fs::remove_dir(&path)
    } else {
        fs::remove_file(&path)
    };
    match done {
        Err(error) if is_harmless(error.kind()) => Ok(()),
        done => done.with_context(|| format!("removing {}", path.display())),
    }
}

/// Whether this error of a removal is no failure: the file is already gone, or the directory has
/// files that fanpcap did not install.
fn is_harmless(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty)
}

/// Records the paths that are about to be installed. Paths of earlier versions stay in the list.
pub(crate) fn record(target: &Path, paths: &[String]) -> Result<()> {
    let list = target.join(LIST);
    let earlier = fs::read_to_string(&list).unwrap_or_default();
    let mut entries: BTreeSet<String> = earlier.lines().map(str::to_owned).collect();
    for path in paths.iter().map(String::as_str).chain([LIST]) {
        entries.insert(path.to_owned());
        let dirs = Path::new(path).ancestors().skip(1);
        let dirs = dirs.filter(|dir| !dir.as_os_str().is_empty());
        let fresh = dirs.filter(|dir| !target.join(dir).exists());
        entries.extend(fresh.map(|dir| format!("{}/", dir.display())));
    }
    let lines: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
    stage::place_text(&lines, &list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;

    #[test]
    fn a_path_that_leaves_the_prefix_is_refused() {
        let scratch = Scratch::new().unwrap();
        let target = scratch.file("prefix");
        fs::create_dir(&target).unwrap();
        let kept = scratch.write("kept", "").unwrap();
        for entry in ["../kept", kept.to_str().unwrap()] {
            assert!(remove(&target, entry).is_err(), "{entry}");
        }
        assert!(kept.exists());
        remove(&target, "gone").unwrap();
    }

    #[test]
    fn a_library_of_another_prefix_stays_enabled() {
        let enabled = "# By fanpcap.\n/usr/local/lib/fanpcap\n";
        for prefix in ["/usr/local", "/usr/local/", "/usr//local"] {
            assert!(names_library_below(enabled, prefix), "{prefix}");
        }
        for prefix in ["/usr/loc", "/opt", "/usr/local/lib/fanpcap/x"] {
            assert!(!names_library_below(enabled, prefix), "{prefix}");
        }
    }

    #[test]
    fn directories_are_listed_where_install_makes_them() {
        let scratch = Scratch::new().unwrap();
        let target = scratch.file("prefix");
        fs::create_dir_all(target.join("share/man")).unwrap();
        record(&target, &["share/man/man1/x.1".to_owned()]).unwrap();
        let list = fs::read_to_string(target.join(LIST)).unwrap();
        let lines =
            "share/fanpcap/\nshare/fanpcap/installed\nshare/man/man1/\nshare/man/man1/x.1\n";
        assert_eq!(list, lines);
    }
}
