//! Directories that only root and the process's own user can change. They are entered name by name,
//! so that no link leads to another place.

use super::directory::{self, Directory};
use std::error::Error;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// A file or directory that other users can change, in the place of a trusted directory.
#[derive(Debug)]
pub struct Untrusted {
    path: PathBuf,
    user: u32,
    mode: u32,
}

impl Untrusted {
    /// The path of the file or directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, user, mode } = self;
        let (path, mode) = (path.display(), mode & 0o7777);
        write!(
            f,
            "{path} is not trusted (user {user}, mode {mode:o}): make it root's, mode 755"
        )
    }
}

impl Error for Untrusted {}

impl From<Untrusted> for io::Error {
    fn from(untrusted: Untrusted) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, untrusted)
    }
}

/// Whether an error is about a file or directory that is not trusted.
pub fn is_untrusted(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Untrusted>())
}

/// Opens the directory at a path. Other users may make names in it if they can't rename or remove
/// those of root.
///
/// # Errors
/// [`Untrusted`], and the error of open(2).
pub fn base(path: &Path) -> io::Result<Directory> {
    let base = Directory::open(path)?;
    let about = base.metadata()?;
    let is_sticky = about.mode() & STICKY != 0 && directory::is_roots_or_own(&about);
    match is_sticky || directory::is_trusted(&about) {
        true => Ok(base),
        false => Err(untrusted(path.to_owned(), &about)),
    }
}

/// Opens the directory `name` in `parent` if only root and the process's user can change it.
///
/// # Errors
/// [`Untrusted`], also if `name` is not a directory; and the error of openat(2).
pub fn enter(parent: &Directory, name: &str) -> io::Result<Directory> {
    let found = match parent.enter(OsStr::new(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(untrusted(name.into(), &parent.about(OsStr::new(name))?));
        }
        found => found?,
    };
    let about = found.metadata()?;
    match directory::is_trusted(&about) {
        true => Ok(found),
        false => Err(untrusted(name.into(), &about)),
    }
}

/// Opens the directory as [`enter`] does, and makes it if it does not exist.
///
/// # Errors
/// As [`enter`], and the error of mkdirat(2).
pub fn enter_or_make(parent: &Directory, name: &str) -> io::Result<Directory> {
    enter_or_make_by(parent, name, Directory::make)
}

/// A function that makes a subdirectory with this name.
pub type Make = fn(&Directory, &OsStr) -> io::Result<()>;

/// Opens the directory as [`enter_or_make`] does. `make` makes it.
///
/// # Errors
/// As [`enter`], and the errors of `make`.
pub fn enter_or_make_by(parent: &Directory, name: &str, make: Make) -> io::Result<Directory> {
    match enter(parent, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        entered => return entered,
    }
    match make(parent, OsStr::new(name)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => enter(parent, name),
    }
}

/// Prepends `parent` to the path in an error of [`enter`].
pub fn placed(parent: &Path, error: io::Error) -> io::Error {
    match error.downcast::<Untrusted>() {
        Ok(found) => Untrusted {
            path: parent.join(found.path),
            ..found
        }
        .into(),
        Err(error) => error,
    }
}

fn untrusted(path: PathBuf, about: &Metadata) -> io::Error {
    let (user, mode) = (about.uid(), about.mode());
    Untrusted { path, user, mode }.into()
}

/// The sticky bit: in such a directory only the owner of a file can rename or remove it (inode(7)).
const STICKY: u32 = 0o1000;
