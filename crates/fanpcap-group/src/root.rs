//! Where the member pages of all network namespaces are: in memory, and where only root and the
//! process's own user can change anything (`docs/security.md`).
//!
//! Below `/run` or `/dev/shm`, the base, is `fanpcap`; below that a directory for each version of
//! pages, so that builds with other pages or locks never take each other's for their own.

use fanpcap_linux::file::directory::{self, Directory};
use fanpcap_linux::process;
use fanpcap_linux::wait::clock;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Only root makes names here, as a rule.
const RUN: &str = "/run";

/// Where `/run` is on a disk, as in many containers. Here everybody makes names.
const SHM: &str = "/dev/shm";

const NAME: &str = "fanpcap";

/// Version of the pages' layout and locks. Those before 4 had flock(2)'s locks and no directory of
/// a version.
const VERSION: &str = "v4";

/// In a directory with this bit only the owners of files rename and remove them (inode(7)).
const STICKY: u32 = 0o1000;

/// How often making the directory is tried while others make it, or something in its place.
const ATTEMPTS: u32 = 8;

/// The place of all pages. What is there is checked each time that it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    base: PathBuf,
}

/// What is in the place of a directory of pages, and not trusted.
#[derive(Debug)]
pub struct Foreign {
    path: PathBuf,
    user: u32,
    mode: u32,
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

/// The directory of all pages, which need not be there yet.
///
/// # Errors
/// `ENODEV` when neither place is in memory; [`Foreign`], of kind `PermissionDenied`, when others
/// could change what is there. There are no pages then.
pub fn root() -> io::Result<PathBuf> {
    let root = Root::find()?;
    match root.open() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) | Err(_) => Ok(root.path()),
    }
}

/// The same for who waits for members: it is made if that may be.
///
/// # Errors
/// As [`root`], and what mkdir(2) says.
pub fn make_root() -> io::Result<PathBuf> {
    let root = Root::find()?;
    root.make().map(|_| root.path())
}

/// Why there are no pages, in brackets for the end of a message, where what is in their place is
/// not trusted.
pub fn distrust() -> String {
    let foreign = root().err().filter(is_foreign);
    foreign.map_or_else(String::new, |error| format!(" ({error})"))
}

fn is_foreign(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Foreign>())
}

impl Root {
    /// The place on this machine.
    ///
    /// # Errors
    /// `ENODEV` when neither base is in memory.
    pub(crate) fn find() -> io::Result<Self> {
        Self::of(Path::new(RUN), Path::new(SHM))
    }

    fn of(run: &Path, shm: &Path) -> io::Result<Self> {
        let is_in_memory = |directory: &Directory| directory.is_in_memory().unwrap_or(false);
        // `/run/fanpcap` may be a mount of its own.
        let is_usable = |base: &Path| {
            let base = Directory::open(base);
            base.is_ok_and(|base| {
                let own = base.enter(OsStr::new(NAME));
                own.map_or_else(|_| is_in_memory(&base), |own| is_in_memory(&own))
            })
        };
        let base = [run, shm].into_iter().find(|base| is_usable(base));
        let base = base.ok_or_else(|| io::Error::from_raw_os_error(ENODEV))?;
        Ok(Self::below(base))
    }

    /// The place below this base.
    pub(crate) fn below(base: &Path) -> Self {
        Self {
            base: base.to_owned(),
        }
    }

    /// The path of the directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.base.join(NAME).join(VERSION)
    }

    /// Opens the directory.
    ///
    /// # Errors
    /// `ENOENT` when there is none yet, and [`Foreign`].
    pub(crate) fn open(&self) -> io::Result<Directory> {
        let own = enter(&self.open_base()?, NAME);
        let own = own.map_err(|error| placed(&self.base, error))?;
        enter(&own, VERSION).map_err(|error| placed(&self.base.join(NAME), error))
    }

    /// Opens the directory, which is made if it is not there.
    ///
    /// # Errors
    /// [`Foreign`], and what mkdir(2) says.
    pub(crate) fn make(&self) -> io::Result<Directory> {
        let base = self.open_base()?;
        let own = make_own(&base).map_err(|error| placed(&self.base, error))?;
        enter_or_make(&own, VERSION).map_err(|error| placed(&self.base.join(NAME), error))
    }

    fn open_base(&self) -> io::Result<Directory> {
        let base = Directory::open(&self.base)?;
        let about = base.metadata()?;
        let is_sticky = about.mode() & STICKY != 0 && directory::is_roots_or_own(&about);
        match is_sticky || directory::is_trusted(&about) {
            true => Ok(base),
            false => Err(foreign(self.base.clone(), &about)),
        }
    }
}

/// The error of [`enter`] with the whole path of what it found in `parent`.
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

/// Opens a directory in another one, if only root and the process's user can change it.
///
/// # Errors
/// [`Foreign`], also for what is no directory, and what openat(2) says.
pub(crate) fn enter(parent: &Directory, name: &str) -> io::Result<Directory> {
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

/// The same; a directory that is not there is made.
///
/// # Errors
/// As [`enter`], and what mkdirat(2) says.
pub(crate) fn enter_or_make(parent: &Directory, name: &str) -> io::Result<Directory> {
    match enter(parent, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        entered => return entered,
    }
    match parent.make(OsStr::new(name)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        Ok(()) | Err(_) => enter(parent, name),
    }
}

/// Opens or makes our directory in the base. Where others may make names, root's processes make it
/// alone, and move what others have put there aside.
fn make_own(base: &Directory) -> io::Result<Directory> {
    let is_root = process::effective_user() == 0;
    if directory::is_trusted(&base.metadata()?) {
        return enter_or_make(base, NAME);
    }
    if !is_root {
        return enter(base, NAME);
    }
    for attempt in 1..ATTEMPTS {
        match enter_or_make(base, NAME) {
            Err(error) if is_foreign(&error) => {
                // The next attempt tells when that fails: the directory is still not ours.
                let _ = move_aside(base, attempt);
            }
            entered => return entered,
        }
    }
    enter_or_make(base, NAME)
}

/// Puts a directory of ours in the place of what others have put there, which gets another name.
fn move_aside(base: &Directory, attempt: u32) -> io::Result<()> {
    let (own, now) = (OsStr::new(NAME), clock::monotonic_ns());
    // A name that nobody can have taken before.
    let aside = format!("{NAME}.foreign.{}.{attempt}.{now}", std::process::id());
    let aside = OsStr::new(&aside);
    base.make(aside)?;
    base.exchange(own, aside)
        .inspect_err(|_| _ = base.remove_directory(aside))?;
    let moved = base.about(aside)?;
    if moved.is_dir() && directory::is_trusted(&moved) {
        // Another process of root's was faster: it keeps its place.
        base.exchange(own, aside)?;
        base.remove_directory(aside)?;
    }
    Ok(())
}

const ENODEV: i32 = 19;

#[cfg(test)]
mod tests;
