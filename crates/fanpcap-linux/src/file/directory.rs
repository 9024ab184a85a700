//! Directories that a process holds open by a descriptor. No link and no rename of a path can
//! redirect an operation in such a directory to another directory.

use crate::errno::{check, owned};
use crate::process;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A directory. The descriptor only names a place in the file system (`O_PATH`, open(2)).
#[derive(Debug)]
pub struct Directory(File);

/// How a file in a directory is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// For reading.
    Read,
    /// For reading and writing.
    Write,
    /// For reading and writing. If the file does not exist, creates it with access for its owner
    /// only.
    Make,
}

impl Directory {
    /// Opens the directory at a path. Follows links.
    ///
    /// # Errors
    /// The error of open(2).
    pub fn open(path: &Path) -> io::Result<Self> {
        open_at(
            libc::AT_FDCWD,
            path.as_os_str(),
            O_PLACE | libc::O_DIRECTORY,
            0,
        )
        .map(Self)
    }

    /// Opens the subdirectory with this name. Does not follow a link.
    ///
    /// # Errors
    /// `ENOTDIR` when the name is not that of a directory, and the error of openat(2).
    pub fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let flags = O_PLACE | libc::O_NOFOLLOW | libc::O_DIRECTORY;
        open_at(self.fd(), single(name)?, flags, 0).map(Self)
    }

    /// Returns the metadata of the directory itself, also after the directory was renamed.
    ///
    /// # Errors
    /// The error of statx(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.0.metadata()
    }

    /// Returns the metadata of the file with this name. Does not follow a link.
    ///
    /// # Errors
    /// `ENOENT` when no file has this name, and the error of openat(2).
    pub fn about(&self, name: &OsStr) -> io::Result<Metadata> {
        self.place(name)?.metadata()
    }

    /// Returns target and metadata of the symbolic link with this name; `None` if the file is not a
    /// link.
    ///
    /// # Errors
    /// As [`Directory::about`], and the error of readlinkat(2).
    pub fn link(&self, name: &OsStr) -> io::Result<Option<(PathBuf, Metadata)>> {
        let place = self.place(name)?;
        let about = place.metadata()?;
        if !about.is_symlink() {
            return Ok(None);
        }
        let mut target = vec![0_u8; PATH_MAX];
        let (fd, room) = (place.as_raw_fd(), target.len());
        // SAFETY: the name is a C string, and the target has room for `room` bytes.
        let len = unsafe { libc::readlinkat(fd, c"".as_ptr(), target.as_mut_ptr().cast(), room) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        target.truncate(len);
        Ok(Some((OsString::from_vec(target).into(), about)))
    }

    /// Opens the file with this name by `O_PATH`: the descriptor only names a place. Does not
    /// follow a link.
    pub(crate) fn place(&self, name: &OsStr) -> io::Result<File> {
        open_at(self.fd(), single(name)?, O_PLACE | libc::O_NOFOLLOW, 0)
    }

    /// Returns the names in the directory, in no order; no names if the directory can't be read.
    pub fn names(&self) -> impl Iterator<Item = OsString> + use<> {
        self.read().into_iter().flatten().flatten()
    }

    /// Reads the names in the directory, in no order.
    ///
    /// # Errors
    /// The errors of open(2) and getdents(2).
    pub fn read(&self) -> io::Result<impl Iterator<Item = io::Result<OsString>> + use<>> {
        let own = format!("/proc/thread-self/fd/{}", self.fd());
        let entries = fs::read_dir(own)?;
        Ok(entries.map(|entry| entry.map(|entry| entry.file_name())))
    }

    /// Returns a path to this name in the directory, for calls that take only paths. The path is
    /// valid as long as `self` lives. A call with this path can follow a symbolic link only at the
    /// last part, `name`.
    ///
    /// # Errors
    /// `InvalidInput` for a name with a `/`, and for an empty name.
    pub fn path_to(&self, name: &OsStr) -> io::Result<PathBuf> {
        let own = format!("/proc/thread-self/fd/{}", self.fd());
        Ok(Path::new(&own).join(single(name)?))
    }

    /// Opens a regular file; `None` if the file is of another type. Does not follow a link and does
    /// not block.
    ///
    /// # Errors
    /// The error of openat(2).
    pub fn file(&self, name: &OsStr, access: Access) -> io::Result<Option<File>> {
        let flags = match access {
            Access::Read => libc::O_RDONLY,
            Access::Write => libc::O_RDWR,
            Access::Make => libc::O_RDWR | libc::O_CREAT,
        };
        let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = open_at(self.fd(), single(name)?, flags, 0o600)?;
        Ok(file.metadata()?.is_file().then_some(file))
    }

    /// Creates a file for writing.
    ///
    /// # Errors
    /// `EEXIST` when the name exists, even as a link; and the error of openat(2).
    pub fn create(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        open_at(self.fd(), single(name)?, flags, mode)
    }

    /// Creates a file without a name. The owner can write the file, and every user can read it.
    ///
    /// # Errors
    /// The error of openat(2).
    pub fn create_unnamed(&self) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_TMPFILE;
        open_at(self.fd(), OsStr::new("."), flags, 0o644)
    }

    /// Gives the name `name` to a file from [`Directory::create_unnamed`] (linkat(2)).
    ///
    /// # Errors
    /// `EEXIST` when the name exists. `ENOENT` when the directory has been removed.
    pub fn set_name(&self, file: &File, name: &OsStr) -> io::Result<()> {
        let own = CString::new(format!("/proc/thread-self/fd/{}", file.as_raw_fd()))?;
        let name = CString::new(single(name)?.as_bytes())?;
        let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
        // SAFETY: both names are C strings that live through the call.
        check(unsafe { libc::linkat(here, own.as_ptr(), self.fd(), name.as_ptr(), follow) })
    }

    /// Creates a subdirectory that every user can read.
    ///
    /// # Errors
    /// `EEXIST` when the name exists, and other errors of mkdirat(2).
    pub fn make(&self, name: &OsStr) -> io::Result<()> {
        self.make_with(name, 0o755)
    }

    /// Creates a subdirectory that only its owner can enter.
    ///
    /// # Errors
    /// As [`Directory::make`].
    pub fn make_private(&self, name: &OsStr) -> io::Result<()> {
        self.make_with(name, 0o700)
    }

    fn make_with(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        let name = CString::new(single(name)?.as_bytes())?;
        // SAFETY: the name is a C string that lives through the call.
        check(unsafe { libc::mkdirat(self.fd(), name.as_ptr(), mode) })
    }

    /// Gives the file or subdirectory with this name to a user and to a group of users. Does not
    /// follow a link.
    ///
    /// # Errors
    /// The error of lchown(2).
    pub fn give(&self, name: &OsStr, (user, group): (u32, u32)) -> io::Result<()> {
        std::os::unix::fs::lchown(self.path_to(name)?, Some(user), Some(group))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// The error of unlinkat(2).
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        self.remove(name, 0)
    }

    /// Removes an empty subdirectory.
    ///
    /// # Errors
    /// `ENOTEMPTY` when the directory has files, and other errors of unlinkat(2).
    pub fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        self.remove(name, libc::AT_REMOVEDIR)
    }

    fn remove(&self, name: &OsStr, flags: i32) -> io::Result<()> {
        let name = CString::new(single(name)?.as_bytes())?;
        // SAFETY: the name is a C string that lives through the call.
        check(unsafe { libc::unlinkat(self.fd(), name.as_ptr(), flags) })
    }

    /// Renames a file. Replaces a file that has the new name.
    ///
    /// # Errors
    /// The error of renameat2(2).
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.rename_as(from, to, 0)
    }

    /// Exchanges the names of two files atomically.
    ///
    /// # Errors
    /// The error of renameat2(2).
    pub fn exchange(&self, one: &OsStr, other: &OsStr) -> io::Result<()> {
        self.rename_as(one, other, libc::RENAME_EXCHANGE)
    }

    fn rename_as(&self, from: &OsStr, to: &OsStr, flags: u32) -> io::Result<()> {
        let from = CString::new(single(from)?.as_bytes())?;
        let to = CString::new(single(to)?.as_bytes())?;
        let fd = self.fd();
        // SAFETY: both names are C strings that live through the call.
        check(unsafe { libc::renameat2(fd, from.as_ptr(), fd, to.as_ptr(), flags) })
    }

    /// Whether the directory is on a file system in memory (tmpfs or ramfs, fstatfs(2)). On such a
    /// file system, a store to a mapped file never waits for a disk.
    ///
    /// # Errors
    /// The error of fstatfs(2).
    pub fn is_in_memory(&self) -> io::Result<bool> {
        let mut about = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: the target is as large as the struct that the call writes.
        check(unsafe { libc::fstatfs(self.fd(), about.as_mut_ptr()) })?;
        // SAFETY: the call has succeeded, so it has written the whole struct.
        let about = unsafe { about.assume_init() };
        Ok([libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&about.f_type))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Opens a file for reading. Follows links. Neither the open nor a read of the file waits
/// (`O_NONBLOCK`): a read that finds no data yet fails with `WouldBlock`.
///
/// # Errors
/// The error of open(2).
pub fn open_to_read(path: &Path) -> io::Result<File> {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK;
    open_at(libc::AT_FDCWD, path.as_os_str(), flags, 0)
}

/// Opens a regular file for reading. Follows links. Checks the file's type before the open, because
/// the open of a pipe waits for a writer, and the open of a device can change the device.
///
/// # Errors
/// `InvalidInput` when the file is not a regular file, and the error of open(2).
pub fn open_regular(path: &Path) -> io::Result<File> {
    let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    let is_file = |about: Metadata| about.is_file().then_some(()).ok_or_else(no_file);
    is_file(fs::metadata(path)?)?;
    let file = open_to_read(path)?;
    // Another process may have changed the path after the first check, so the open file is checked,
    // too.
    is_file(file.metadata()?)?;
    Ok(file)
}

/// Reads a file to its end.
///
/// # Errors
/// `FileTooLarge` when the file is longer than `most` bytes, and the error of read(2).
pub fn read_at_most(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!("it is longer than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Whether the file's owner and mode let only root and the calling process's effective user change
/// the file.
pub fn is_trusted(about: &Metadata) -> bool {
    is_roots_or_own(about) && !others_may_write(about)
}

/// Whether the file's mode lets group or others write.
pub fn others_may_write(about: &Metadata) -> bool {
    about.mode() & OTHERS_WRITE != 0
}

/// Whether the file belongs to root or to the calling process's effective user.
pub fn is_roots_or_own(about: &Metadata) -> bool {
    [0, process::effective_user()].contains(&about.uid())
}

/// Whether the user for whom the process runs may read the file's content: all users may read the
/// file, or the file belongs to that user. The process itself may be able to read more files,
/// because it may have more privileges than this user.
pub fn is_for_caller(about: &Metadata) -> bool {
    about.mode() & libc::S_IROTH != 0 || about.uid() == process::caller()
}

const OTHERS_WRITE: u32 = 0o022;

/// The flag for a descriptor that only names a place in the file system.
const O_PLACE: i32 = libc::O_PATH;

/// linux/magic.h.
const RAMFS_MAGIC: libc::__fsword_t = 0x8584_58f6;

/// linux/limits.h: the most bytes in a link's target.
const PATH_MAX: usize = 4096;

/// Checks that a name is not empty and has no `/`.
pub(crate) fn single(name: &OsStr) -> io::Result<&OsStr> {
    let is_path = name.as_bytes().contains(&b'/');
    match is_path || name.is_empty() {
        true => Err(io::ErrorKind::InvalidInput.into()),
        false => Ok(name),
    }
}

fn open_at(directory: RawFd, path: &OsStr, flags: i32, mode: u32) -> io::Result<File> {
    let path = CString::new(path.as_bytes())?;
    let flags = flags | libc::O_CLOEXEC;
    loop {
        // SAFETY: the path is a C string that lives through the call.
        match owned(unsafe { libc::openat(directory, path.as_ptr(), flags, mode) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            opened => return opened.map(File::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};

    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> (Self, Directory) {
            let name = format!("fanpcap-directory-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::DirBuilder::new().mode(0o755).create(&path).unwrap();
            let directory = Directory::open(&path).unwrap();
            (Self(path), directory)
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    #[test]
    fn a_directory_that_was_renamed_is_still_the_one() {
        let (scene, directory) = Scene::new("renamed");
        directory.make(name("old")).unwrap();
        let inner = directory.enter(name("old")).unwrap();
        directory.rename(name("old"), name("new")).unwrap();
        symlink("/", scene.0.join("old")).unwrap();
        inner.create(name("file"), 0o600).unwrap();
        assert!(scene.0.join("new/file").exists());
        assert_eq!(inner.names().collect::<Vec<_>>(), ["file"]);
        inner.remove_file(name("file")).unwrap();
        directory.remove_directory(name("new")).unwrap();
        assert!(directory.names().eq(["old"]));
    }

    #[test]
    fn links_and_paths_are_not_followed() {
        let (scene, directory) = Scene::new("links");
        symlink("/etc", scene.0.join("directory")).unwrap();
        symlink("/etc/hostname", scene.0.join("file")).unwrap();
        let not_a_directory = directory.enter(name("directory")).unwrap_err();
        assert_eq!(not_a_directory.raw_os_error(), Some(libc::ENOTDIR));
        for access in [Access::Read, Access::Write, Access::Make] {
            let refused = directory.file(name("file"), access).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::ELOOP));
        }
        let (target, about) = directory.link(name("file")).unwrap().unwrap();
        assert_eq!(target, Path::new("/etc/hostname"));
        assert!(is_roots_or_own(&about));
        for path in ["", "a/b", "/etc"] {
            let refused = directory.enter(name(path)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn names_change_places() {
        let (scene, directory) = Scene::new("places");
        directory.create(name("file"), 0o600).unwrap();
        directory.make(name("directory")).unwrap();
        directory.exchange(name("file"), name("directory")).unwrap();
        assert!(scene.0.join("file").is_dir() && scene.0.join("directory").is_file());
        assert!(directory.link(name("file")).unwrap().is_none());
    }

    #[test]
    fn what_others_may_write_is_not_trusted() {
        let (scene, directory) = Scene::new("trusted");
        let is_trusted = |mode: u32| {
            fs::set_permissions(&scene.0, fs::Permissions::from_mode(mode)).unwrap();
            is_trusted(&directory.metadata().unwrap())
        };
        assert!(is_trusted(0o755) && is_trusted(0o700));
        assert!(!is_trusted(0o775) && !is_trusted(0o757) && !is_trusted(0o1777));
    }

    #[test]
    fn file_systems_in_memory_are_told_from_others() {
        let is_in_memory = |path: &str| Directory::open(Path::new(path))?.is_in_memory();
        assert!(!is_in_memory("/proc").unwrap());
        let none = is_in_memory("/proc/none").unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let of_tmpfs = |line: &str| {
            let mut fields = line.split(' ').skip(1);
            let path = fields.next()?.to_owned();
            (fields.next()? == "tmpfs").then_some(path)
        };
        // Checks only the newest tmpfs mount, because a newer mount may hide an older mount on its
        // path.
        for path in mounts.lines().rev().filter_map(of_tmpfs).take(1) {
            assert!(is_in_memory(&path).unwrap(), "{path}");
        }
    }
}
