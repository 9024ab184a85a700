//! Lists all files in a root directory, so that a test can compare them before and after a change.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Paths that are not compared: files that a package manager writes for itself, and files that
/// belong to no package.
const LEFT_OUT: [&str; 8] = [
    "proc",
    "sys",
    "tmp",
    "var/log",
    "var/cache",
    // The list of automatically installed packages, which apt rewrites.
    "var/lib/apt",
    // The status file before the last change, and lock files.
    "var/lib/dpkg/status-old",
    "var/lib/dpkg/lock",
];

/// dpkg's records of all packages.
const STATUS: &str = "var/lib/dpkg/status";

/// Each path with its mode, owner and content. Times are not compared.
#[derive(Debug, PartialEq, Eq)]
pub struct Listing(BTreeMap<PathBuf, String>);

impl Listing {
    /// Lists all files below `root`.
    ///
    /// # Errors
    /// A file can't be read.
    pub fn of(root: &Path) -> Result<Self> {
        let mut entries = BTreeMap::new();
        walk(root, Path::new(""), &mut entries)?;
        Ok(Self(entries))
    }

    /// The differences: a line for each path that was added, removed or changed.
    pub fn differences(&self, later: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, entry) in &self.0 {
            match later.0.get(path) {
                None => lines.push(format!("went: {}", path.display())),
                Some(now) if now != entry => {
                    lines.push(format!("changed: {} {entry} {now}", path.display()));
                }
                Some(_) => {}
            }
        }
        let came = later.0.keys().filter(|path| !self.0.contains_key(*path));
        lines.extend(came.map(|path| format!("came: {}", path.display())));
        lines
    }
}

/// dpkg's records without the priorities, which apt takes from the archive's lists.
fn status(path: &Path) -> Result<Vec<u8>> {
    let text = fs::read_to_string(path)?;
    let lines = text.lines().filter(|line| !line.starts_with("Priority: "));
    Ok(lines.collect::<Vec<_>>().join("\n").into_bytes())
}

fn walk(root: &Path, inside: &Path, entries: &mut BTreeMap<PathBuf, String>) -> Result<()> {
    let dir = root.join(inside);
    for entry in fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
        let inside = inside.join(entry?.file_name());
        if LEFT_OUT
            .iter()
            .any(|left_out| inside == Path::new(left_out))
        {
            continue;
        }
        let path = root.join(&inside);
        let meta = fs::symlink_metadata(&path)?;
        let (mode, uid, gid) = (meta.mode(), meta.uid(), meta.gid());
        let content = match meta.file_type() {
            kind if kind.is_symlink() => fs::read_link(&path)?.display().to_string(),
            kind if kind.is_file() && inside == Path::new(STATUS) => hashed(&status(&path)?),
            kind if kind.is_file() => hashed(&fs::read(&path)?),
            _ => String::new(),
        };
        entries.insert(inside.clone(), format!("{mode:o} {uid}:{gid} {content}"));
        if meta.is_dir() {
            walk(root, &inside, entries)?;
        }
    }
    Ok(())
}

fn hashed(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("{} bytes, {:016x}", bytes.len(), hasher.finish())
}

#[cfg(test)]
mod tests {
    use fanpcap_testkit::Scratch;

    use super::*;

    #[test]
    fn what_came_went_and_changed_is_told() {
        let scratch = Scratch::new().unwrap();
        fs::create_dir_all(scratch.file("root/etc")).unwrap();
        let file = |name: &str| scratch.file("root").join(name);
        fs::write(file("etc/stays"), "1").unwrap();
        fs::write(file("etc/goes"), "1").unwrap();
        fs::write(file("etc/changes"), "1").unwrap();
        let before = Listing::of(&scratch.file("root")).unwrap();
        fs::remove_file(file("etc/goes")).unwrap();
        fs::write(file("etc/changes"), "2").unwrap();
        fs::write(file("etc/comes"), "1").unwrap();
        fs::create_dir(file("tmp")).unwrap();
        let after = Listing::of(&scratch.file("root")).unwrap();
        let lines = before.differences(&after);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines.contains(&"went: etc/goes".to_owned()), "{lines:?}");
        assert!(lines.contains(&"came: etc/comes".to_owned()), "{lines:?}");
    }
}
