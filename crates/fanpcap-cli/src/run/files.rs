//! The files that the arguments of a copy name: which of them this run wrote, and how those of a copy that
//! is started again are kept.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::arguments;
use super::merge::is_capture;

/// The files of one copy.
#[derive(Debug)]
pub(crate) struct Files {
    /// What the arguments may name, and what was there before the copy was started.
    named: BTreeMap<PathBuf, Option<State>>,
    /// Those that earlier starts left, under their new names.
    kept: Vec<PathBuf>,
}

/// What changes when a file is written or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    file: (u64, u64),
    len: u64,
    modified: (i64, i64),
}

impl State {
    fn of(path: &Path) -> Option<Self> {
        let is_file = |found: &Metadata| found.is_file();
        let found = fs::metadata(path).ok().filter(is_file)?;
        Some(Self {
            file: (found.dev(), found.ino()),
            len: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }
}

impl Files {
    /// The files of copy `number`, before it is started.
    pub(crate) fn of(arguments: &[OsString], number: usize) -> Self {
        let named = arguments::files(arguments, number).into_iter();
        Self {
            named: named.map(|path| (path.clone(), State::of(&path))).collect(),
            kept: Vec::new(),
        }
    }

    /// Whether one of them is `path`.
    pub(crate) fn contain(&self, path: &Path) -> bool {
        let same = |named: &Path| match (named.canonicalize(), path.canonicalize()) {
            (Ok(one), Ok(other)) => one == other,
            _ => named == path,
        };
        self.named.keys().any(|named| same(named))
    }

    /// Renames what the copy wrote, so that its next start does not write over it: NAME to NAME.1, .2 and so
    /// on. What it did not change, as what it reads, stays. Returns the new names.
    ///
    /// # Errors
    /// When a file can't be renamed.
    pub(crate) fn keep(&mut self) -> Result<Vec<PathBuf>> {
        let mut names = Vec::new();
        for path in self.written() {
            let name = free_name(&path);
            fs::rename(&path, &name)
                .with_context(|| format!("keeping {} as {}", path.display(), name.display()))?;
            names.push(name);
            self.named.insert(path, None);
        }
        self.kept.extend(names.iter().cloned());
        Ok(names)
    }

    /// The captures that the copy wrote, those of earlier starts first.
    pub(crate) fn captures(&self) -> Vec<PathBuf> {
        let written = self.written();
        let all = self.kept.iter().chain(&written);
        all.filter(|path| begins_as_capture(path))
            .cloned()
            .collect()
    }

    fn written(&self) -> Vec<PathBuf> {
        let changed = |(path, before): &(&PathBuf, &Option<State>)| {
            let now = State::of(path);
            now.is_some() && now != **before
        };
        let written = self.named.iter().filter(changed);
        written.map(|(path, _)| path.clone()).collect()
    }
}

fn free_name(path: &Path) -> PathBuf {
    let numbered = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    let is_free = |name: &PathBuf| fs::symlink_metadata(name).is_err();
    (1..)
        .map(numbered)
        .find(is_free)
        .unwrap_or_else(|| numbered(0))
}

/// Whether the file is a capture, if only the beginning of one.
fn begins_as_capture(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut head));
    read.is_ok() && !head.is_empty() && is_capture(&head) != Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::Scratch;

    const HEAD: [u8; 24] = [
        0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0,
    ];

    #[test]
    fn what_the_copy_wrote_is_kept_and_what_it_read_stays() {
        let scratch = Scratch::new().unwrap();
        let (read, written) = (scratch.file("in0"), scratch.file("out0"));
        fs::write(&read, HEAD).unwrap();
        fs::write(scratch.file("out0.1"), "of another day").unwrap();
        let arguments = ["-r", "in%i", "-w", "out%i"].map(|text| match text.strip_suffix("%i") {
            Some(_) => scratch.file(text).into_os_string(),
            None => text.into(),
        });
        let mut files = Files::of(&arguments, 0);
        assert!(files.captures().is_empty() && files.contain(&written));
        fs::write(&written, HEAD).unwrap();
        assert_eq!(files.keep().unwrap(), [scratch.file("out0.2")]);
        assert!(read.exists() && !written.exists());
        fs::write(&written, HEAD).unwrap();
        assert_eq!(files.captures(), [scratch.file("out0.2"), written.clone()]);
        assert_eq!(files.keep().unwrap(), [scratch.file("out0.3")]);
        assert!(files.keep().unwrap().is_empty());
        fs::write(&written, "text").unwrap();
        assert_eq!(files.captures().len(), 2);
    }
}
