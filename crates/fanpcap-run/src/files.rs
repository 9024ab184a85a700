//! The files that a copy's arguments name. Finds out which of these files the copy wrote, and keeps
//! the written files when the copy is started again.

mod rotated;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fanpcap_linux::file::directory::open_regular;
use fanpcap_merge::{is_capture, resolve};

use super::arguments;
use rotated::Pattern;

/// The files of one copy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    /// Paths that the arguments may name, each with the state that the file had before the copy
    /// started; `None` if there was no file.
    named: BTreeMap<PathBuf, Option<State>>,
    /// Patterns of the names that applications derive from the named paths. Files with such a name
    /// that existed before the start are in `named`.
    patterns: Vec<Pattern>,
    /// Names of other copies' files. A file with such a name is not a file of this copy, even if a
    /// pattern of this copy matches the name.
    others: BTreeSet<PathBuf>,
    /// The names that [`Self::keep`] has given to the files of earlier starts.
    kept: Vec<PathBuf>,
}

/// The state of a file: two states differ if the file was written or replaced in between.
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
    /// The files of copy `number`, before its first start.
    pub(crate) fn of(arguments: &[OsString], number: usize) -> Self {
        let mut named: BTreeSet<PathBuf> =
            arguments::files(arguments, number).into_iter().collect();
        let patterns: Vec<Pattern> = named.iter().filter_map(|path| Pattern::of(path)).collect();
        let others = (0..NUMBERS).filter(|other| *other != number);
        let others: BTreeSet<PathBuf> = others
            .flat_map(|other| arguments::files(arguments, other))
            .filter(|path| !named.contains(path))
            .collect();
        let found = patterns.iter().flat_map(Pattern::found);
        named.extend(found.filter(|path| !others.contains(path)));
        let named = named.into_iter();
        Self {
            named: named.map(|path| (path.clone(), State::of(&path))).collect(),
            patterns,
            others,
            kept: Vec::new(),
        }
    }

    /// Whether `path`, which need not exist yet, is one of the files.
    pub(crate) fn contain(&self, path: &Path) -> bool {
        let wanted = resolve(path).ok();
        let same = |named: &Path| match (&wanted, resolve(named)) {
            (Some(wanted), Ok(named)) => *wanted == named,
            _ => named == path,
        };
        // A derived name counts before the application has written to the file.
        let derived = self.patterns.iter().flat_map(Pattern::found);
        let mut derived = derived.filter(|path| !self.others.contains(path));
        self.named.keys().any(|named| same(named)) || derived.any(|path| same(&path))
    }

    /// Renames the files that the copy wrote to NAME.1, .2 and so on, so that the next start does
    /// not overwrite them. Files that the copy did not change, such as its input, keep their names.
    /// Returns the new names.
    ///
    /// # Errors
    /// A file can't be renamed.
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

    /// Captures that the copy wrote, those of earlier starts first.
    pub(crate) fn captures(&self) -> Vec<PathBuf> {
        let written = self.written();
        let all = self.kept.iter().chain(&written);
        all.filter(|path| begins_as_capture(path))
            .cloned()
            .collect()
    }

    /// Files that the copy wrote under its named paths and that are not captures.
    pub(crate) fn no_captures(&self) -> Vec<PathBuf> {
        let written = self.written().into_iter();
        written.filter(|path| !begins_as_capture(path)).collect()
    }

    /// Files that the copy wrote, oldest first.
    fn written(&self) -> Vec<PathBuf> {
        let further = self.patterns.iter().flat_map(Pattern::found);
        let further = further.filter(|path| !self.others.contains(path) && begins_as_capture(path));
        let all: BTreeSet<PathBuf> = self.named.keys().cloned().chain(further).collect();
        let changed = all.into_iter().filter_map(|path| {
            let now = State::of(&path)?;
            let before = self.named.get(&path).and_then(Option::as_ref);
            (Some(&now) != before).then_some((now, path))
        });
        let mut changed: Vec<(State, PathBuf)> = changed.collect();
        changed.sort_by_key(|(state, _)| state.modified);
        // Two names may be links to the same file.
        let mut seen = BTreeSet::new();
        changed.retain(|(state, _)| seen.insert(state.file));
        changed.into_iter().map(|(_, path)| path).collect()
    }
}

/// An upper bound of the copies' numbers.
const NUMBERS: usize = 256;

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

/// Whether the file starts like a capture.
fn begins_as_capture(path: &Path) -> bool {
    let mut head = Vec::new();
    // In a directory where other users can write, the name may belong to a pipe, which must not
    // be opened: this command would wait for a writer.
    let read = open_regular(path).and_then(|file| file.take(4).read_to_end(&mut head));
    read.is_ok() && !head.is_empty() && is_capture(&head) != Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_testkit::{Scratch, pipe};

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
        assert_eq!(files.no_captures(), [written]);
    }

    fn of(scratch: &Scratch, name: &str, number: usize) -> Files {
        Files::of(&["-w".into(), scratch.file(name).into_os_string()], number)
    }

    #[test]
    fn rotated_captures_are_found_and_kept() {
        let scratch = Scratch::new().unwrap();
        fs::write(scratch.file("1.pcap7"), HEAD).unwrap();
        let mut files = of(&scratch, "%i.pcap", 1);
        let names = [
            "1.pcap",
            "1.pcap1",
            "1.pcap2",
            "1_00001_20261120203000.pcap",
        ];
        for name in names.iter().chain(&["1.pcap.9", "11.pcap", "1x.pcap"]) {
            fs::write(scratch.file(name), HEAD).unwrap();
        }
        fs::write(scratch.file("1.pcap3"), "text").unwrap();
        // What the application has not written yet is in its buffer.
        fs::write(scratch.file("1.pcap5"), "").unwrap();
        assert!(
            files.contain(&scratch.file("1.pcap5")) && !files.contain(&scratch.file("1x.pcap"))
        );
        // Other users may put such a pipe into a directory like /tmp.
        let (pipe, own) = (scratch.file("1.pcap4"), files.clone());
        let found = pipe::opened(&pipe, move |_| own.captures()).unwrap();
        let found: BTreeSet<_> = found.into_iter().collect();
        assert_eq!(found, names.iter().map(|name| scratch.file(name)).collect());
        assert_eq!(files.keep().unwrap().len(), 4);
        fs::write(scratch.file("1.pcap1"), HEAD).unwrap();
        assert_eq!(files.captures().len(), 5);

        let strftime = of(&scratch, "%i-%H%M.pcap", 1);
        fs::write(scratch.file("1-2030.pcap"), HEAD).unwrap();
        assert_eq!(strftime.captures(), [scratch.file("1-2030.pcap")]);
    }

    #[test]
    fn files_of_other_copies_are_not_taken_for_further_ones() {
        let scratch = Scratch::new().unwrap();
        let files = of(&scratch, "cap%i", 1);
        fs::write(scratch.file("cap1"), HEAD).unwrap();
        fs::write(scratch.file("cap10"), HEAD).unwrap();
        assert_eq!(files.captures(), [scratch.file("cap1")]);
    }

    #[test]
    fn a_file_is_the_same_by_whatever_path() {
        let scratch = Scratch::new().unwrap();
        let files = of(&scratch, "%i.pcap", 0);
        let around = scratch
            .file("")
            .join("../")
            .join(scratch.file("").file_name().unwrap());
        assert!(files.contain(&around.join("./0.pcap")));
        assert!(!files.contain(&around.join("1.pcap")));
        std::os::unix::fs::symlink("0.pcap", scratch.file("all.pcap")).unwrap();
        assert!(files.contain(&scratch.file("all.pcap")));
    }
}
