//! Files in a directory that others may write to: made whole before they have a name, opened without
//! following links or waiting, and locked (flock(2)) as long as their owner lives, however it dies.

use crate::errno::check;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Makes a file without a name in `directory`, for its owner to write and everybody to read.
pub fn create_unnamed(directory: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(0o644)
        .open(directory)
}

/// Gives an unnamed file its name (linkat(2)).
///
/// # Errors
/// `EEXIST`: there is such a file. `ENOENT`: the directory is gone.
pub fn set_name(file: &File, path: &Path) -> io::Result<()> {
    let own = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: both paths are C strings that live through the call.
    check(unsafe { libc::linkat(here, own.as_ptr(), here, path.as_ptr(), follow) })
}

/// Opens a regular file to read; none for anything else, such as a link or a pipe.
pub fn open_regular(path: &Path) -> io::Result<Option<File>> {
    open(path, OpenOptions::new().read(true))
}

/// The same to read and to write.
pub fn open_regular_to_write(path: &Path) -> io::Result<Option<File>> {
    open(path, OpenOptions::new().read(true).write(true))
}

fn open(path: &Path, options: &mut OpenOptions) -> io::Result<Option<File>> {
    let file = options
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    Ok(file.metadata()?.is_file().then_some(file))
}

/// Opens a directory, to lock it; links are not followed.
///
/// # Errors
/// What open(2) says: `ENOTDIR` for anything else.
pub fn open_directory(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
        .open(path)
}

/// Whether a file or directory is on a file system in memory (tmpfs or ramfs, statfs(2)): a store to a mapped
/// file waits for no disk there.
pub fn is_in_memory(path: &Path) -> io::Result<bool> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut about = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the path is a C string, and the target as large as the call's result.
    check(unsafe { libc::statfs(path.as_ptr(), about.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so it has written all of it.
    let about = unsafe { about.assume_init() };
    Ok([libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&about.f_type))
}

/// linux/magic.h.
const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;

/// Takes the exclusive lock of a file, without waiting; false when somebody else has it.
pub fn try_lock_exclusive(file: &File) -> io::Result<bool> {
    try_lock(file, libc::LOCK_EX)
}

/// Takes a shared lock, without waiting; false when somebody else has the exclusive one.
pub fn try_lock_shared(file: &File) -> io::Result<bool> {
    try_lock(file, libc::LOCK_SH)
}

/// Gives a lock back, also for the copies of the descriptor that children have by fork(2).
///
/// # Errors
/// What flock(2) says.
pub fn unlock(file: &File) -> io::Result<()> {
    try_lock(file, libc::LOCK_UN).map(drop)
}

fn try_lock(file: &File, kind: i32) -> io::Result<bool> {
    // SAFETY: flock takes plain numbers; the descriptor is open.
    match check(unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) }) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_given_back_is_so_for_copies_too() {
        let path = std::env::temp_dir();
        let (one, other) = (
            open_directory(&path).unwrap(),
            open_directory(&path).unwrap(),
        );
        assert!(try_lock_exclusive(&one).unwrap());
        let _copy = one.try_clone().unwrap();
        assert!(!try_lock_exclusive(&other).unwrap());
        unlock(&one).unwrap();
        assert!(try_lock_exclusive(&other).unwrap());
        assert!(open_directory(Path::new("/proc/self/exe")).is_err());
    }

    #[test]
    fn file_systems_in_memory_are_told_from_others() {
        assert!(!is_in_memory(Path::new("/proc")).unwrap());
        let none = is_in_memory(Path::new("/proc/none")).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let of_tmpfs = |line: &str| {
            let mut fields = line.split(' ').skip(1);
            let path = fields.next()?.to_owned();
            (fields.next()? == "tmpfs").then_some(path)
        };
        // The last one mounted hides the others of its path.
        for path in mounts.lines().rev().filter_map(of_tmpfs).take(1) {
            assert!(is_in_memory(Path::new(&path)).unwrap(), "{path}");
        }
    }
}
