//! Word of files that leave their directory (inotify(7)).

use crate::errno::check;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, c_int};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Tells which files were removed from, or moved out of, the directories that it watches.
#[derive(Debug)]
pub struct Removals {
    file: File,
    watched: BTreeMap<c_int, PathBuf>,
}

impl Removals {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// `EMFILE` and the like, as inotify_init1(2) says.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes plain numbers.
        let fd = unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) };
        check(fd)?;
        // SAFETY: a new descriptor that nobody else owns.
        let file = unsafe { OwnedFd::from_raw_fd(fd) }.into();
        Ok(Self {
            file,
            watched: BTreeMap::new(),
        })
    }

    /// Watches a directory until it is removed; once more does no harm.
    ///
    /// # Errors
    /// `ENOENT` when there is none, `ENOSPC` when the user has too many watches.
    pub fn watch(&mut self, directory: &Path) -> io::Result<()> {
        let path = CString::new(directory.as_os_str().as_bytes())?;
        let events = libc::IN_DELETE | libc::IN_MOVED_FROM | libc::IN_ONLYDIR;
        // SAFETY: the path is a C string that lives through the call.
        let watch =
            unsafe { libc::inotify_add_watch(self.file.as_raw_fd(), path.as_ptr(), events) };
        check(watch)?;
        self.watched.insert(watch, directory.to_owned());
        Ok(())
    }

    /// The files that have gone since the last call. None when so much happened that the kernel lost
    /// count: then look for yourself.
    ///
    /// # Errors
    /// What read(2) says.
    pub fn take(&mut self) -> io::Result<Option<Vec<PathBuf>>> {
        let mut gone = Vec::new();
        let mut complete = true;
        let mut bytes = [0; 8192];
        loop {
            let len = match self.file.read(&mut bytes) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            complete &= self.parse(&bytes[..len], &mut gone);
        }
        Ok(complete.then_some(gone))
    }

    /// inotify_event: watch, mask, cookie, length, then so many bytes of name, padded with zeros.
    fn parse(&mut self, mut bytes: &[u8], gone: &mut Vec<PathBuf>) -> bool {
        let mut complete = true;
        while let Some((head, rest)) = bytes.split_at_checked(HEAD_LEN) {
            let word = |at: usize| {
                let word = head.get(at..at + 4).and_then(|word| word.try_into().ok());
                u32::from_ne_bytes(word.unwrap_or_default())
            };
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
                gone.push(directory.join(OsStr::from_bytes(name)));
            }
            bytes = rest;
        }
        complete
    }
}

impl AsFd for Removals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

const HEAD_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_goes_is_told_and_a_directory_may_go_and_come() {
        let name = format!("fanpcap-inotify-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut removals = Removals::new().unwrap();
        for _ in 0..2 {
            fs::create_dir(&directory).unwrap();
            removals.watch(&directory).unwrap();
            removals.watch(&directory).unwrap();
            let files = ["7.1", "a longer name than that"].map(|name| directory.join(name));
            for file in &files {
                fs::write(file, "").unwrap();
            }
            assert_eq!(removals.take().unwrap(), Some(vec![]));
            for file in &files {
                fs::remove_file(file).unwrap();
            }
            assert_eq!(removals.take().unwrap(), Some(files.to_vec()));
            fs::remove_dir(&directory).unwrap();
            assert_eq!(removals.take().unwrap(), Some(vec![]));
        }
        assert!(removals.watched.is_empty() && removals.watch(&directory).is_err());
    }
}
