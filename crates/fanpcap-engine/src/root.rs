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
use fanpcap_linux::file::trusted::{self, Make, enter_or_make_by, is_untrusted, placed};
pub use fanpcap_linux::file::trusted::{enter, enter_or_make};
use fanpcap_linux::process;
use fanpcap_linux::wait::clock;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

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

/// How many times to try to make the root's directory while other processes make or replace it.
const ATTEMPTS: u32 = 8;

/// The root of all group directories. Each function that opens the root checks the root's
/// directories again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    base: PathBuf,
}

/// Returns the path of the root, which may not exist yet.
///
/// # Errors
/// `ENODEV` when neither base is in memory. [`trusted::Untrusted`], of kind `PermissionDenied`,
/// when other users could change the root. In both cases no member has a page.
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
    let made = make_own(&trusted::base(&path)?, STATE, Directory::make_private);
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
    enter(&enter(&trusted::base(&base)?, STATE)?, name)
}

/// Returns the reason why no member has a page, in brackets for the end of a message. The text is
/// empty unless the root is untrusted.
pub fn distrust() -> String {
    let foreign = root().err().filter(is_untrusted);
    foreign.map_or_else(String::new, |error| format!(" ({error})"))
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
    /// `ENOENT` when the root does not exist yet, and [`trusted::Untrusted`].
    pub fn open(&self) -> io::Result<Directory> {
        let own = enter(&trusted::base(&self.base)?, NAME);
        let own = own.map_err(|error| placed(&self.base, error))?;
        enter(&own, VERSION).map_err(|error| placed(&self.base.join(NAME), error))
    }

    /// Opens the root and makes it if needed.
    ///
    /// # Errors
    /// [`trusted::Untrusted`], and the error of mkdir(2).
    pub fn make(&self) -> io::Result<Directory> {
        let base = trusted::base(&self.base)?;
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
            Err(error) if is_untrusted(&error) => {
                // If this fails, the next attempt finds the foreign directory again and reports it.
                let _ = move_aside(base, name, make, attempt);
            }
            entered => return entered,
        }
    }
    enter_or_make_by(base, name, make)
}

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
