//! Finds, checks and makes the root of all group directories.
//!
//! The root is `fanpcap/<version>` below a base, `/run` or `/dev/shm`. The base must be in memory.
//! No user except root and the process's own user may be able to change the root
//! (`docs/security.md`). Each version of the page layout has a root of its own, so that builds of
//! different versions never read each other's pages.
//!
//! State that only the administrator's commands need is in `fanpcap-state` below a base. So
//! containers can share the pages without this state.

use fanpcap_linux::file::directory::{self, Directory};
use fanpcap_linux::process;
use fanpcap_linux::wait::clock;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The first base: usually only root can create names here.
const RUN: &str = "/run";

/// The second base, used if `/run` is on a disk, as in many containers. Every user can create names
/// in `/dev/shm`.
const SHM: &str = "/dev/shm";

const NAME: &str = "fanpcap";

/// The directory of the administrator's state, which only its owner can enter.
const STATE: &str = "fanpcap-state";

/// Version of the page layout and of the locks. Versions before 4 used flock(2), and had no
/// directory for each version.
const VERSION: &str = "v7";

/// The sticky bit: in such a directory only the owner of a file can rename or remove it (inode(7)).
const STICKY: u32 = 0o1000;

/// How many times to try to make the root's directory while other processes make or replace it.
const ATTEMPTS: u32 = 8;

/// The root of all group directories. Each function that opens the root checks the root's
/// directories again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    base: PathBuf,
}

/// An untrusted file or directory where a directory of pages should be.
#[derive(Debug)]
pub struct Foreign {
    path: PathBuf,
    user: u32,
    mode: u32,
}

impl Foreign {
    /// The path of the file or directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, user, mode } = self;
        let mode = mode & 0o7777;
        write!(
            f,
            "{} is not trusted (user {user}, mode {mode:o}): make it root's, mode 755",
            path.display()
        )
    }
}

impl std::error::Error for Foreign {}

/// Returns the path of the root, which may not exist yet.
///
/// # Errors
/// `ENODEV` when neither base is in memory. [`Foreign`], of kind `PermissionDenied`, when other
/// users could change the root. In both cases no member has a page.
pub fn root() -> io::Result<PathBuf> {
    let root = Root::find()?;
    match root.open() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) | Err(_) => Ok(root.path()),
    }
}

/// Returns the path of the root and makes the root if needed. Observers that wait for the first
/// member call this function.
///
/// # Errors
/// The errors of [`root`], and the error of mkdir(2).
pub fn make_root() -> io::Result<PathBuf> {
    let root = Root::find()?;
    root.make().map(|_| root.path())
}

/// Opens the directory `part` in the directory `name` of the administrator's state. Makes these two
/// directories and the state's directory if needed, so that only their owner can enter them.
/// Returns the directory and its path.
///
/// # Errors
/// As [`make_root`].
pub fn state_directory(name: &str, part: &str) -> io::Result<(Directory, PathBuf)> {
    let path = base(Path::new(RUN), Path::new(SHM), &[STATE])?;
    let made = make_own(&open_base(&path)?, STATE, Directory::make_private);
    let mut found = made.map_err(|error| placed(&path, error))?;
    let mut path = path.join(STATE);
    for name in [name, part] {
        let inner = enter_or_make_by(&found, name, Directory::make_private);
        found = inner.map_err(|error| placed(&path, error))?;
        path = path.join(name);
    }
    Ok((found, path))
}

/// Opens the directory `name` of the administrator's state, if the directory exists and is trusted.
///
/// # Errors
/// `ENOENT` if the directory does not exist; `EACCES` for users other than root; the errors of
/// [`root`].
pub fn find_state(name: &str) -> io::Result<Directory> {
    let base = base(Path::new(RUN), Path::new(SHM), &[STATE])?;
    enter(&enter(&open_base(&base)?, STATE)?, name)
}

/// Returns the reason why no member has a page, in brackets for the end of a message. The text is
/// empty unless the root is untrusted.
pub fn distrust() -> String {
    let foreign = root().err().filter(is_foreign);
    foreign.map_or_else(String::new, |error| format!(" ({error})"))
}

/// Whether an error is about a file or directory that is not trusted.
pub fn is_foreign(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Foreign>())
}

impl Root {
    /// Finds the base on this machine.
    ///
    /// # Errors
    /// `ENODEV` when neither base is in memory.
    pub fn find() -> io::Result<Self> {
        Self::of(Path::new(RUN), Path::new(SHM))
    }

    fn of(run: &Path, shm: &Path) -> io::Result<Self> {
        base(run, shm, &[NAME, VERSION]).map(|base| Self::below(&base))
    }

    /// Returns the root below this base.
    pub fn below(base: &Path) -> Self {
        Self {
            base: base.to_owned(),
        }
    }

    /// The path of the root.
    pub fn path(&self) -> PathBuf {
        self.base.join(NAME).join(VERSION)
    }

    /// Opens the root.
    ///
    /// # Errors
    /// `ENOENT` when the root does not exist yet, and [`Foreign`].
    pub fn open(&self) -> io::Result<Directory> {
        let own = enter(&open_base(&self.base)?, NAME);
        let own = own.map_err(|error| placed(&self.base, error))?;
        enter(&own, VERSION).map_err(|error| placed(&self.base.join(NAME), error))
    }

    /// Opens the root and makes it if needed.
    ///
    /// # Errors
    /// [`Foreign`], and the error of mkdir(2).
    pub fn make(&self) -> io::Result<Directory> {
        let base = open_base(&self.base)?;
        let own =
            make_own(&base, NAME, Directory::make).map_err(|error| placed(&self.base, error))?;
        enter_or_make(&own, VERSION).map_err(|error| placed(&self.base.join(NAME), error))
    }
}

/// The base of the directories `names`, each of which is inside the one before. Returns the first
/// base whose deepest existing directory is in memory: a container may have another file system
/// mounted on any of these directories.
fn base(run: &Path, shm: &Path, names: &[&str]) -> io::Result<PathBuf> {
    let is_usable = |base: &Path| {
        let mut deepest = Directory::open(base)?;
        for name in names {
            match deepest.enter(OsStr::new(name)) {
                Ok(inner) => deepest = inner,
                Err(_) => break,
            }
        }
        deepest.is_in_memory()
    };
    let mut bases = [run, shm].into_iter();
    let base = bases.find(|base| is_usable(base).unwrap_or(false));
    let base = base.ok_or_else(|| io::Error::from_raw_os_error(ENODEV))?;
    Ok(base.to_owned())
}

fn open_base(path: &Path) -> io::Result<Directory> {
    let base = Directory::open(path)?;
    let about = base.metadata()?;
    let is_sticky = about.mode() & STICKY != 0 && directory::is_roots_or_own(&about);
    match is_sticky || directory::is_trusted(&about) {
        true => Ok(base),
        false => Err(foreign(path.to_owned(), &about)),
    }
}

/// Prepends `parent` to the path in an error of [`enter`].
fn placed(parent: &Path, error: io::Error) -> io::Error {
    match error.downcast::<Foreign>() {
        Ok(found) => Foreign {
            path: parent.join(found.path),
            ..found
        }
        .into(),
        Err(error) => error,
    }
}

impl From<Foreign> for io::Error {
    fn from(foreign: Foreign) -> Self {
        Self::new(io::ErrorKind::PermissionDenied, foreign)
    }
}

fn foreign(path: PathBuf, about: &Metadata) -> io::Error {
    let (user, mode) = (about.uid(), about.mode());
    Foreign { path, user, mode }.into()
}

/// Opens the directory `name` in `parent` if only root and the process's user can change it.
///
/// # Errors
/// [`Foreign`], also when `name` is not a directory; and the error of openat(2).
pub fn enter(parent: &Directory, name: &str) -> io::Result<Directory> {
    let found = match parent.enter(OsStr::new(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(foreign(name.into(), &parent.about(OsStr::new(name))?));
        }
        found => found?,
    };
    let about = found.metadata()?;
    match directory::is_trusted(&about) {
        true => Ok(found),
        false => Err(foreign(name.into(), &about)),
    }
}

/// Opens the directory as [`enter`] does, and makes it if it does not exist.
///
/// # Errors
/// As [`enter`], and the error of mkdirat(2).
pub fn enter_or_make(parent: &Directory, name: &str) -> io::Result<Directory> {
    enter_or_make_by(parent, name, Directory::make)
}

fn enter_or_make_by(parent: &Directory, name: &str, make: Make) -> io::Result<Directory> {
    match enter(parent, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        entered => return entered,
    }
    match make(parent, OsStr::new(name)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => enter(parent, name),
    }
}

/// Opens or makes a directory in the base. If every user can create names in the base, only root's
/// processes make the directory, and they move a foreign file of that name aside.
fn make_own(base: &Directory, name: &str, make: Make) -> io::Result<Directory> {
    let is_root = process::effective_user() == 0;
    if directory::is_trusted(&base.metadata()?) {
        return enter_or_make_by(base, name, make);
    }
    if !is_root {
        return enter(base, name);
    }
    for attempt in 1..ATTEMPTS {
        match enter_or_make_by(base, name, make) {
            Err(error) if is_foreign(&error) => {
                // If this fails, the next attempt finds the foreign directory again and reports it.
                let _ = move_aside(base, name, make, attempt);
            }
            entered => return entered,
        }
    }
    enter_or_make_by(base, name, make)
}

/// A function that makes a subdirectory with this name.
type Make = fn(&Directory, &OsStr) -> io::Result<()>;

/// Makes a directory under a temporary name and exchanges it with the foreign file. Afterwards the
/// foreign file has the temporary name.
fn move_aside(base: &Directory, name: &str, make: Make, attempt: u32) -> io::Result<()> {
    let (own, now) = (OsStr::new(name), clock::monotonic_ns());
    // The time makes the temporary name unpredictable, so no other user can have created it before.
    let aside = format!("{name}.foreign.{}.{attempt}.{now}", std::process::id());
    let aside = OsStr::new(&aside);
    make(base, aside)?;
    base.exchange(own, aside)
        .inspect_err(|_| _ = base.remove_directory(aside))?;
    let moved = base.about(aside)?;
    if moved.is_dir() && directory::is_trusted(&moved) {
        // Another process of root made the directory first. The second exchange gives that
        // directory its name back.
        base.exchange(own, aside)?;
        base.remove_directory(aside)?;
    }
    Ok(())
}

const ENODEV: i32 = 19;

#[cfg(test)]
mod tests;
