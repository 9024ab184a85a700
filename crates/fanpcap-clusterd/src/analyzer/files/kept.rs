//! Which of an analyzer's files are kept: the oldest are removed.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fanpcap_linux::file::space;
use fanpcap_terminal::streams;

/// How the files' names begin and end.
const BEGIN: &str = "records-";
const END: &str = ".pcapng";

/// What is appended to the names of compressed files, and of a file that is being compressed.
pub(super) const COMPRESSED: &str = ".zst";
pub(super) const PART: &str = ".zst.part";

/// Minimum number of digits of the seconds, and number of digits of the nanoseconds, in a name.
const SECONDS: usize = 10;
const NANOSECONDS: usize = 9;

/// A file system may show the space of removed files as free only after this many nanoseconds:
/// btrfs needs its next transaction for this.
const LAG: u64 = 60_000_000_000;

/// The limits for the files that are kept. `None` means no limit. All limits apply together.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Retention {
    /// Maximum number of files.
    pub(in super::super) files: Option<usize>,
    /// Maximum number of bytes of all files together.
    pub(in super::super) bytes: Option<u64>,
    /// Minimum number of free bytes. If set, old files are also removed when the disk is full.
    pub(in super::super) free: Option<u64>,
}

/// Counts removed files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct RemovedFiles {
    pub(in super::super) files: u64,
    pub(in super::super) bytes: u64,
}

/// The analyzer's files in its directory.
#[derive(Debug)]
pub(super) struct KeptFiles {
    directory: PathBuf,
    retention: Retention,
    /// Total size of the finished files in bytes, when the directory was last read.
    finished: u64,
    freed: FreedSpace,
    /// Files that could not be removed.
    stuck: BTreeSet<PathBuf>,
    pub(super) removed: RemovedFiles,
}

struct OldFile {
    path: PathBuf,
    bytes: u64,
}

/// Space that was freed, but that the file system does not show as free yet.
#[derive(Clone, Copy, Debug, Default)]
struct FreedSpace {
    /// Bytes that were freed, but that the file system does not show as free.
    hidden: u64,
    /// Free bytes that the file system showed when it was last asked.
    shown: u64,
    /// The time after which `hidden` counts as 0, in nanoseconds since 1970.
    until: u64,
}

impl FreedSpace {
    /// How many bytes are free: `free` bytes that the file system shows, and the `hidden` bytes.
    fn free(&mut self, free: u64, now: u64) -> u64 {
        let grown = free.saturating_sub(self.shown);
        self.shown = free;
        self.hidden = self.hidden.saturating_sub(grown);
        if now >= self.until {
            self.hidden = 0;
        }
        free.saturating_add(self.hidden)
    }
}

impl KeptFiles {
    pub(super) fn new(directory: &Path, retention: Retention) -> Self {
        Self {
            directory: directory.to_owned(),
            retention,
            finished: 0,
            freed: FreedSpace::default(),
            stuck: BTreeSet::new(),
            removed: RemovedFiles::default(),
        }
    }

    /// Makes room for a file that is to begin at `now`.
    pub(super) fn before_file(&mut self, now: u64) -> io::Result<()> {
        self.stuck.clear();
        self.retire(None, now)
    }

    /// Keeps to the limits while a file is written. `open` is the file's path and its size after
    /// the write.
    pub(super) fn during_file(&mut self, open: (&Path, u64), now: u64) -> io::Result<()> {
        let is_over = |most: u64| self.finished.saturating_add(open.1) > most;
        if self.retention.bytes.is_some_and(is_over) || self.lack(now)? > 0 {
            self.retire(Some(open), now)?;
        }
        Ok(())
    }

    /// Removes the oldest file because the disk is full. Returns whether a file was removed.
    pub(super) fn make_room(&mut self, open: Option<&Path>, now: u64) -> bool {
        if self.retention.free.is_none() {
            return false;
        }
        let old = self.old(open).unwrap_or_default();
        // Notes how many bytes the file system shows as free before the removal.
        let _ = self.lack(now);
        let removed = old.iter().find(|old| self.remove(old));
        self.note_freed(removed.map_or(0, |old| old.bytes), now);
        removed.is_some()
    }

    /// Removes the oldest files until the limits are kept. A file that can't be removed is reported
    /// and stays, because new packets must still be written.
    fn retire(&mut self, open: Option<(&Path, u64)>, now: u64) -> io::Result<()> {
        let old = self.old(open.map(|(path, _)| path))?;
        let Retention { files, bytes, .. } = self.retention;
        let mut count = old.len() + 1;
        let mut sum: u64 = old.iter().map(|old| old.bytes).sum();
        let written = open.map_or(0, |(_, bytes)| bytes);
        let mut lack = self.lack(now)?;
        let mut freed = 0;
        for old in &old {
            let is_many = files.is_some_and(|most| count > most.max(1));
            let is_large = bytes.is_some_and(|most| sum.saturating_add(written) > most);
            if !is_many && !is_large && lack == 0 {
                break;
            }
            count -= 1;
            sum -= old.bytes;
            if self.remove(old) {
                freed += old.bytes;
                lack = lack.saturating_sub(old.bytes);
            }
        }
        self.finished = sum;
        self.note_freed(freed, now);
        Ok(())
    }

    /// How many bytes must be freed to reach the required free space.
    fn lack(&mut self, now: u64) -> io::Result<u64> {
        let Some(least) = self.retention.free else {
            return Ok(0);
        };
        let free = space::available(&self.directory)?;
        Ok(least.saturating_sub(self.freed.free(free, now)))
    }

    /// Notes that this many bytes were freed since [`KeptFiles::lack`] was called.
    fn note_freed(&mut self, bytes: u64, now: u64) {
        if bytes > 0 {
            self.freed.hidden = self.freed.hidden.saturating_add(bytes);
            self.freed.until = now.saturating_add(LAG);
        }
    }

    fn remove(&mut self, old: &OldFile) -> bool {
        match fs::remove_file(&old.path) {
            Ok(()) => {
                self.removed.files += 1;
                self.removed.bytes += old.bytes;
                true
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => {
                self.stuck.insert(old.path.clone());
                streams::note(&format!(
                    "fanpcap analyzer: cannot remove {}: {error}: remove it, or the files exceed \
                     the limits\n",
                    old.path.display()
                ));
                false
            }
        }
    }

    /// The files that may be removed, the oldest first.
    fn old(&self, open: Option<&Path>) -> io::Result<Vec<OldFile>> {
        let paths = ours(&self.directory)?.into_iter();
        let paths = paths.filter(|path| Some(&**path) != open && !self.stuck.contains(path));
        // Another process may remove a file in the meantime.
        let old = paths.filter_map(|path| {
            let bytes = fs::symlink_metadata(&path).ok()?.len();
            Some(OldFile { path, bytes })
        });
        Ok(old.collect())
    }
}

/// The name of a file that begins at `now`. Until the year 2286, the alphabetical order of names is
/// their order in time; then the seconds get one more digit.
pub(super) fn name(now: u64) -> String {
    let (seconds, rest) = (now / 1_000_000_000, now % 1_000_000_000);
    format!("{BEGIN}{seconds:0SECONDS$}.{rest:0NANOSECONDS$}{END}")
}

/// Whether [`name`] can have made this file name.
fn is_name(name: &str) -> bool {
    let middle = name
        .strip_prefix(BEGIN)
        .and_then(|rest| rest.strip_suffix(END));
    let Some((seconds, rest)) = middle.and_then(|middle| middle.split_once('.')) else {
        return false;
    };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(seconds) && seconds.len() >= SECONDS && is_number(rest) && rest.len() == NANOSECONDS
}

/// The analyzers' files in a directory, compressed or not, the oldest first.
pub(super) fn ours(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let is_ours = |name: &str| is_name(name.strip_suffix(COMPRESSED).unwrap_or(name));
    files(directory, is_ours)
}

pub(super) fn uncompressed(directory: &Path) -> io::Result<Vec<PathBuf>> {
    files(directory, is_name)
}

/// The files that a killed analyzer had compressed only in part.
pub(super) fn parts(directory: &Path) -> io::Result<Vec<PathBuf>> {
    files(directory, |name| {
        name.strip_suffix(PART).is_some_and(is_name)
    })
}

/// The files of a directory whose names satisfy `is_one`, in the order of their names. Links and
/// pipes are left out, because an analyzer makes none, and opening a pipe would wait for a writer.
fn files(directory: &Path, is_one: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_file = || entry.file_type().is_ok_and(|kind| kind.is_file());
        if entry.file_name().to_str().is_some_and(&is_one) && is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

#[cfg(test)]
mod tests;
