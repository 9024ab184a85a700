//! Locks of a file that belong to an open file description (fcntl(2), `F_OFD_SETLK`). A process
//! needs write access to the file to take an exclusive lock of this kind. This module does not use
//! flock(2), because a process that may only read the file could take such a lock. When the last
//! process that has the open file description dies, the kernel releases the lock.
//!
//! A child inherits the open file description by fork(2), and with it the lock. A mapping of the
//! file keeps the lock after the descriptor is closed.

use crate::process::stat::{self, Stat};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Takes a file's lock without waiting. Returns false when another open file description has the
/// lock. The file must be open for writing.
///
/// # Errors
/// `EBADF` for a file that is open only for reading, and the error of fcntl(2).
pub fn try_take(file: &File) -> io::Result<bool> {
    try_take_byte(file, 0)
}

/// Takes the lock of one byte of a file without waiting. Each byte has a lock of its own.
///
/// # Errors
/// As [`try_take`].
pub fn try_take_byte(file: &File, byte: u32) -> io::Result<bool> {
    take(file, libc::F_WRLCK, byte)
}

fn take(file: &File, kind: i32, byte: u32) -> io::Result<bool> {
    match lock(file, libc::F_OFD_SETLK, kind, byte, 1) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether another open file description has the file's write lock. Read locks do not count,
/// because a process can take a read lock without write access. Takes no lock.
///
/// # Errors
/// The error of fcntl(2).
pub fn is_taken(file: &File) -> io::Result<bool> {
    is_byte_taken(file, 0)
}

/// Whether another open file description has the write lock of one byte. See [`is_taken`].
///
/// # Errors
/// The error of fcntl(2).
pub fn is_byte_taken(file: &File, byte: u32) -> io::Result<bool> {
    is_locked(file, libc::F_RDLCK, byte, 1)
}

/// Whether another open file description has the write lock of any byte from `from` on.
///
/// # Errors
/// The error of fcntl(2).
pub fn is_any_taken(file: &File, from: u32) -> io::Result<bool> {
    // Length 0 means all bytes up to the file's end.
    is_locked(file, libc::F_RDLCK, from, 0)
}

/// Takes a shared lock of one byte, which many open file descriptions may have at a time. Returns
/// false when another open file description has the exclusive lock.
///
/// # Errors
/// The error of fcntl(2).
pub fn share_byte(file: &File, byte: u32) -> io::Result<bool> {
    take(file, libc::F_RDLCK, byte)
}

/// Whether another open file description has an exclusive or shared lock of one byte. Every process
/// that may read the file may take a shared lock. So the result can be trusted only if other users
/// can't open the file.
///
/// # Errors
/// The error of fcntl(2).
pub fn is_byte_shared(file: &File, byte: u32) -> io::Result<bool> {
    is_locked(file, libc::F_WRLCK, byte, 1)
}

/// Returns a process for which `/proc/PID/fdinfo` shows a lock of one byte; `None` if there is no
/// such process.
pub fn holder(file: &File, byte: u32) -> Option<Stat> {
    holding(file, byte)?.next()
}

/// Returns all processes for which `/proc/PID/fdinfo` shows a lock of one byte.
pub fn holders(file: &File, byte: u32) -> Vec<Stat> {
    holding(file, byte).into_iter().flatten().collect()
}

fn holding(file: &File, byte: u32) -> Option<impl Iterator<Item = Stat>> {
    let inode = file.metadata().ok()?.ino();
    let its = format!(":{inode} {byte} {byte}");
    let has_it = move |process: &Stat| {
        let is_its = |line: &str| line.starts_with("lock:") && line.ends_with(&its);
        let infos = fs::read_dir(format!("/proc/{}/fdinfo", process.pid));
        let mut infos = infos.into_iter().flatten().flatten();
        infos.any(|it| fs::read_to_string(it.path()).is_ok_and(|text| text.lines().any(is_its)))
    };
    Some(stat::all().into_iter().filter(has_it))
}

/// Releases a lock that [`try_take_byte`] has taken. After that, copies of the descriptor in forked
/// children do not have the lock either.
///
/// # Errors
/// The error of fcntl(2).
pub fn release_byte(file: &File, byte: u32) -> io::Result<()> {
    lock(file, libc::F_OFD_SETLK, libc::F_UNLCK, byte, 1).map(drop)
}

fn is_locked(file: &File, kind: i32, byte: u32, len: i64) -> io::Result<bool> {
    let found = lock(file, libc::F_OFD_GETLK, kind, byte, len)?;
    Ok(i32::from(found.l_type) != libc::F_UNLCK)
}

fn lock(file: &File, command: i32, kind: i32, byte: u32, len: i64) -> io::Result<libc::flock> {
    let narrow = |number: i32| libc::c_short::try_from(number).map_err(io::Error::other);
    let mut lock = libc::flock {
        l_type: narrow(kind)?,
        l_whence: narrow(libc::SEEK_SET)?,
        l_start: byte.into(),
        l_len: len,
        l_pid: 0,
    };
    // SAFETY: the commands read and write a struct flock, and `lock` is a live one. The descriptor
    // is open.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    crate::errno::check(done).map(|()| lock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::shared;
    use std::fs::OpenOptions;
    use std::path::PathBuf;

    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let name = format!("fanpcap-lock-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn open(&self) -> File {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.open(&self.0).unwrap()
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn who_may_only_read_can_neither_take_a_lock_nor_pretend_to() {
        let scene = Scene::new("reads");
        let owner = scene.open();
        let stranger = File::open(&scene.0).unwrap();
        assert!(!is_taken(&stranger).unwrap());
        let refused = try_take(&stranger).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
        lock(&stranger, libc::F_OFD_SETLK, libc::F_RDLCK, 0, 1).unwrap();
        // SAFETY: takes plain numbers; the descriptor is open.
        let flock = unsafe { libc::flock(stranger.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        assert_eq!(flock, 0);
        let watcher = File::open(&scene.0).unwrap();
        assert!(
            !is_taken(&watcher).unwrap(),
            "flock and a read lock count as the write lock"
        );
        // Releases the lock explicitly, because a child of another test may have a copy of the
        // descriptor, and with it the lock.
        release_byte(&stranger, 0).unwrap();
        assert!(try_take(&owner).unwrap() && is_taken(&watcher).unwrap());
    }

    #[test]
    fn a_mapping_keeps_the_lock() {
        let scene = Scene::new("mapping");
        let owner = scene.open();
        assert!(try_take(&owner).unwrap());
        let words = shared::map(&owner, &[0; 2]).unwrap();
        drop(owner);
        let watcher = File::open(&scene.0).unwrap();
        assert!(is_taken(&watcher).unwrap());
        drop(words);
        // A concurrent test may be about to start a process. Its child keeps the mapping, and with
        // it the lock, until exec(2).
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while is_taken(&watcher).unwrap() {
            assert!(std::time::Instant::now() < end);
        }
    }

    #[test]
    fn a_lock_that_is_given_back_is_so_for_copies_too() {
        let scene = Scene::new("copies");
        let (one, other) = (scene.open(), scene.open());
        assert!(try_take_byte(&one, 7).unwrap());
        let _copy = one.try_clone().unwrap();
        assert!(!try_take_byte(&other, 7).unwrap());
        assert!(
            try_take_byte(&other, u32::MAX).unwrap(),
            "the lock of another byte is taken"
        );
        assert_eq!(holder(&other, 7).unwrap().pid, std::process::id());
        release_byte(&one, 7).unwrap();
        assert_eq!(holder(&other, 7), None);
        assert!(try_take_byte(&other, 7).unwrap());
    }

    #[test]
    fn a_lock_is_shared_by_many() {
        let scene = Scene::new("shares");
        let [one, other, third] = [(); 3].map(|()| scene.open());
        assert!(share_byte(&one, 7).unwrap());
        assert!(
            !is_byte_shared(&one, 7).unwrap(),
            "the description's own lock counts"
        );
        assert!(share_byte(&other, 7).unwrap());
        assert!(is_byte_shared(&one, 7).unwrap());
        assert!(!try_take_byte(&third, 7).unwrap());
        assert_eq!(holder(&third, 7).unwrap().pid, std::process::id());
        release_byte(&other, 7).unwrap();
        assert!(
            is_byte_shared(&third, 7).unwrap(),
            "the first shared lock is lost"
        );
        release_byte(&one, 7).unwrap();
        assert!(!is_byte_shared(&third, 7).unwrap());
    }
}
