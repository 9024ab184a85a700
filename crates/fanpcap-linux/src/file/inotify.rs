//! Reports files that are created in a directory or removed from it (inotify(7)).

use crate::bytes::u32_at;
use crate::errno::{check, owned};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, c_int};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A change in a watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file or directory was created, linked or moved into the directory.
    Came(PathBuf),
    /// A file or directory was removed or moved away.
    Gone(PathBuf),
}

/// An inotify descriptor with the directories that it watches.
#[derive(Debug)]
pub struct Changes {
    file: File,
    watched: BTreeMap<c_int, PathBuf>,
}

impl Changes {
    /// Opens a descriptor that watches no directory yet.
    ///
    /// # Errors
    /// `EMFILE` and other errors of inotify_init1(2).
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes plain numbers.
        let fd = owned(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })?;
        Ok(Self {
            file: fd.into(),
            watched: BTreeMap::new(),
        })
    }

    /// Watches a directory until the directory is removed. A second call for the same directory has
    /// no effect. Does not follow a link.
    ///
    /// # Errors
    /// `ENOENT` when there is no such directory, `ENOSPC` when the user has too many watches.
    pub fn watch(&mut self, directory: &Path) -> io::Result<()> {
        let path = CString::new(directory.as_os_str().as_bytes())?;
        let events = CAME | libc::IN_DELETE | libc::IN_MOVED_FROM | libc::IN_ONLYDIR;
        let events = events | libc::IN_DONT_FOLLOW;
        // SAFETY: the path is a C string that lives through the call.
        let watch =
            unsafe { libc::inotify_add_watch(self.file.as_raw_fd(), path.as_ptr(), events) };
        check(watch)?;
        self.watched.insert(watch, directory.to_owned());
        Ok(())
    }

    /// Returns the changes since the last call, in order. `None` if the kernel's queue has
    /// overflowed, so that changes are missing. In this case, the caller must list the directories.
    ///
    /// # Errors
    /// The error of read(2).
    pub fn take(&mut self) -> io::Result<Option<Vec<Change>>> {
        let mut changes = Vec::new();
        let mut complete = true;
        let mut bytes = [0; 8192];
        loop {
            let len = match self.file.read(&mut bytes) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            complete &= self.parse(&bytes[..len], &mut changes);
        }
        Ok(complete.then_some(changes))
    }

    /// Parses struct inotify_event: watch, mask, cookie, length, then `length` bytes of name,
    /// padded with zeros. Returns false if events are missing.
    fn parse(&mut self, mut bytes: &[u8], changes: &mut Vec<Change>) -> bool {
        let mut complete = true;
        while let Some((head, rest)) = bytes.split_at_checked(HEAD_LEN) {
            let word = |at| u32_at(head, at).unwrap_or_default();
            let (mask, len) = (word(4), word(12) as usize);
            let watch = c_int::from_ne_bytes(word(0).to_ne_bytes());
            let Some((name, rest)) = rest.split_at_checked(len) else {
                return false;
            };
            complete &= mask & libc::IN_Q_OVERFLOW == 0;
            if mask & libc::IN_IGNORED != 0 {
                self.watched.remove(&watch);
            } else if let Some(directory) = self.watched.get(&watch) {
                let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
                let path = directory.join(OsStr::from_bytes(name));
                changes.push(if mask & CAME != 0 {
                    Change::Came(path)
                } else {
                    Change::Gone(path)
                });
            }
            bytes = rest;
        }
        complete
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

const HEAD_LEN: usize = 16;
const CAME: u32 = libc::IN_CREATE | libc::IN_MOVED_TO;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_comes_and_goes_is_told_and_a_directory_may_too() {
        let name = format!("fanpcap-inotify-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut changes = Changes::new().unwrap();
        for _ in 0..2 {
            fs::create_dir(&directory).unwrap();
            changes.watch(&directory).unwrap();
            changes.watch(&directory).unwrap();
            let files = ["7.1", "a longer name than that"].map(|name| directory.join(name));
            for file in &files {
                fs::write(file, "").unwrap();
            }
            let linked = directory.join("linked");
            fs::hard_link(&files[0], &linked).unwrap();
            let came = [&files[0], &files[1], &linked].map(|path| Change::Came(path.clone()));
            assert_eq!(changes.take().unwrap(), Some(came.to_vec()));
            for file in &files {
                fs::remove_file(file).unwrap();
            }
            let moved = directory.with_extension("moved");
            fs::rename(&linked, &moved).unwrap();
            fs::rename(&moved, &linked).unwrap();
            fs::remove_file(&linked).unwrap();
            let gone = files.clone().map(Change::Gone).to_vec();
            let there_and_back = [
                Change::Gone(linked.clone()),
                Change::Came(linked.clone()),
                Change::Gone(linked),
            ];
            assert_eq!(
                changes.take().unwrap(),
                Some([&gone[..], &there_and_back].concat())
            );
            fs::remove_dir(&directory).unwrap();
            assert_eq!(changes.take().unwrap(), Some(vec![]));
        }
        assert!(changes.watched.is_empty() && changes.watch(&directory).is_err());
    }
}
