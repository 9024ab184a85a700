//! Where a device's journal lies, the lock for changing it, and the locks of those who want changes
//! to stay.
//!
//! The files `<ifindex>.journal` and `<ifindex>.lock` are in `fanpcap-state/tune/<netns>` below
//! `/run` (below `/dev/shm` where `/run` is not in memory), which only root can enter. Byte 0 of
//! the lock file is the lock for changes. Each owner holds the lock of another byte for as long as
//! it lives, in whichever PID namespace. The directory `irqbalance` beside those of network
//! namespaces has the lock for changing the list of irqbalance(1), which all devices share.

use super::entry::{About, Change, Content, Owner};
use crate::device::Device;
use fanpcap_engine::root;
use fanpcap_linux::file::directory::{self, Access, Directory};
use fanpcap_linux::file::{lock, shared};
use fanpcap_linux::netlink::link;
use fanpcap_linux::process::netns;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use std::{fmt, process};

/// Why a journal can't be read or written. Nothing is changed then.
#[derive(Debug)]
pub enum JournalError {
    /// Its directory or its files can't be used.
    System(io::Error),
    /// Another process is changing the device.
    Busy,
    /// This file is no journal of this version.
    Malformed(PathBuf),
}

/// Where a device's journal lies.
#[derive(Debug)]
pub struct Place {
    directory: Directory,
    path: PathBuf,
    /// Whether the directory is removed when nothing is in it.
    is_own: bool,
    ifindex: u32,
    pub(super) about: About,
}

/// An owner's hold on its changes. It ends with its process, however that dies: the next process
/// that opens the journal can put the changes back.
#[derive(Debug)]
pub struct Hold {
    file: File,
    pub(super) owner: Owner,
}

/// The right to change a device, and its journal.
#[derive(Debug)]
pub(super) struct Guard(File);

/// The directory of the journals of all network namespaces.
const TUNE: &str = "tune";

/// The directory of the lock for irqbalance's list. Namespaces' directories have numbers as names.
const IRQBALANCE: &str = "irqbalance";

/// The byte of the lock for changes.
const TURN: u32 = 0;

/// No device has more owners.
const OWNERS_MAX: u32 = 65_536;

/// How often and after how many milliseconds to look for the lock: a driver may need seconds to set
/// up its queues.
const PATIENCE: u32 = 1000;
const LOOK_MS: u64 = 10;

/// No journal is longer.
const BYTES_MAX: u64 = 8 << 20;

impl Place {
    /// Where the journal of this device lies. Makes the directories if needed.
    ///
    /// # Errors
    /// [`JournalError::System`].
    pub fn of(device: &Device) -> Result<Self, JournalError> {
        let netns = netns::inode().map_err(JournalError::System)?.to_string();
        let found = root::state_directory(TUNE, &netns).map_err(JournalError::System)?;
        Ok(Self::own(found, device))
    }

    /// Where an earlier build has left a journal of this device, if it has. Root of a container
    /// that shares `/run/fanpcap` may have written it.
    pub(super) fn of_earlier(device: &Device) -> Option<Self> {
        let (directory, path) = root::find_earlier_state(TUNE).ok()?;
        let netns = netns::inode().ok()?.to_string();
        let directory = root::enter(&directory, &netns).ok()?;
        let place = Self::own((directory, path.join(netns)), device);
        let about = place.directory.about(OsStr::new(&place.name())).ok()?;
        (about.is_file() && directory::is_trusted(&about)).then_some(place)
    }

    /// A journal in the directory of a network namespace.
    fn own(found: (Directory, PathBuf), device: &Device) -> Self {
        let about = About {
            name: device.name.clone(),
            address: device.address.clone(),
            driver: device.driver.clone(),
        };
        Self {
            is_own: true,
            ..Self::below(found, device.ifindex, about)
        }
    }

    /// The path of the journal.
    pub(super) fn path(&self) -> PathBuf {
        self.path.join(self.name())
    }

    pub(super) fn below(found: (Directory, PathBuf), ifindex: u32, about: About) -> Self {
        Self {
            directory: found.0,
            path: found.1,
            is_own: false,
            ifindex,
            about,
        }
    }

    /// Waits for the right to change the device.
    pub(super) fn take(&self) -> Result<Guard, JournalError> {
        let mut file = self.locks()?;
        for _ in 0..PATIENCE {
            if !lock::try_take_byte(&file, TURN).map_err(JournalError::System)? {
                thread::sleep(Duration::from_millis(LOOK_MS));
            } else if self.is_there(&file) {
                return Ok(Guard(file));
            } else {
                file = self.locks()?;
            }
        }
        Err(JournalError::Busy)
    }

    /// Runs `change` with the right to change. Leaves nothing in the directory.
    pub(super) fn alone<T>(&self, change: impl FnOnce() -> T) -> Result<T, JournalError> {
        let guard = self.take()?;
        let changed = change();
        self.tidy(&guard);
        Ok(changed)
    }

    fn lock_name(&self) -> String {
        format!("{}.lock", self.ifindex)
    }

    /// Whether the lock file is still the one of that name, and not removed by `tidy`.
    fn is_there(&self, file: &File) -> bool {
        let named = self.directory.about(OsStr::new(&self.lock_name()));
        let both = named.and_then(|named| Ok((named.ino(), file.metadata()?.ino())));
        both.is_ok_and(|(named, own)| named == own)
    }

    /// Removes the lock file, and the directory with the last one, unless an owner has a lock.
    pub(super) fn tidy(&self, guard: &Guard) {
        if !lock::is_any_taken(&guard.0, TURN + 1).unwrap_or(true) {
            let _ = self.directory.remove_file(OsStr::new(&self.lock_name()));
        }
        if self.is_own {
            // Fails while there are other files in it.
            let _ = fs::remove_dir(&self.path);
        }
    }

    fn locks(&self) -> Result<File, JournalError> {
        let name = self.lock_name();
        let file = self.directory.file(OsStr::new(&name), Access::Make);
        let file = file.and_then(|file| file.ok_or_else(|| io::ErrorKind::InvalidData.into()));
        file.map_err(JournalError::System)
    }

    fn name(&self) -> String {
        format!("{}.journal", self.ifindex)
    }

    /// The journal, or an empty one.
    pub(super) fn read(&self) -> Result<Content, JournalError> {
        let name = self.name();
        let file = match self.directory.file(OsStr::new(&name), Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => opened.map_err(JournalError::System)?,
        };
        let Some(file) = file else {
            return Ok(Content {
                about: self.about.clone(),
                changes: Vec::new(),
            });
        };
        let mut text = String::new();
        let read = file.take(BYTES_MAX).read_to_string(&mut text);
        let content = read.ok().and_then(|_| Content::parse(&text));
        content.ok_or_else(|| JournalError::Malformed(self.path()))
    }

    /// Writes the journal, so that a crash leaves the former one or this one. An empty journal is
    /// removed.
    pub(super) fn write(&self, content: &Content) -> Result<(), JournalError> {
        let (name, new) = (self.name(), format!("{}.new", self.ifindex));
        let (name, new) = (OsStr::new(&name), OsStr::new(&new));
        let written = match content.changes.is_empty() {
            true => self.directory.remove_file(name),
            false => self.replace(name, new, &content.text()),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written.map_err(JournalError::System),
        }
    }

    fn replace(&self, name: &OsStr, new: &OsStr, text: &str) -> io::Result<()> {
        if shared::file_size_limit()? < text.len() as u64 {
            // An attempt would kill the process (`SIGXFSZ`).
            return Err(io::Error::from_raw_os_error(EFBIG));
        }
        // A crash may have left one.
        let _ = self.directory.remove_file(new);
        let mut file = self.directory.create(new, 0o600)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        super::step();
        self.directory.rename(new, name)
    }

    /// The hold of a new owner, whose number no change has.
    pub(super) fn hold(&self, content: &Content) -> Result<Hold, JournalError> {
        let file = self.locks()?;
        let mut owners = content.changes.iter().flat_map(|change| &change.owners);
        let used: Vec<u32> = owners.by_ref().map(|owner| owner.number).collect();
        for number in (TURN + 1..OWNERS_MAX).filter(|number| !used.contains(number)) {
            if lock::try_take_byte(&file, number).map_err(JournalError::System)? {
                let pid = process::id();
                let owner = Owner { number, pid };
                return Ok(Hold { file, owner });
            }
        }
        Err(JournalError::Busy)
    }
}

/// The interface indices of which the calling thread's network namespace has journals.
///
/// # Errors
/// [`JournalError::System`].
pub fn journals() -> Result<Vec<u32>, JournalError> {
    let netns = netns::inode().map_err(JournalError::System)?.to_string();
    let found = root::state_directory(TUNE, &netns).map_err(JournalError::System)?;
    let number = |name: OsString| name.to_str()?.strip_suffix(".journal")?.parse().ok();
    let mut numbers: Vec<u32> = found.0.names().filter_map(number).collect();
    if numbers.is_empty() {
        // Fails while there are files in it.
        let _ = fs::remove_dir(&found.1);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The changes in the journals of the other devices of the calling thread's network namespace.
/// Makes no directories.
///
/// # Errors
/// [`JournalError::System`].
pub fn changes_of_others(device: &Device) -> Result<Vec<Change>, JournalError> {
    let mut changes = Vec::new();
    let netns = netns::inode().map_err(JournalError::System)?.to_string();
    let all = match root::find_state(TUNE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(changes),
        found => found.map_err(JournalError::System)?,
    };
    if all.about(OsStr::new(&netns)).is_err() {
        return Ok(changes);
    }
    for ifindex in journals()?.into_iter().filter(|&it| it != device.ifindex) {
        let found = root::state_directory(TUNE, &netns).map_err(JournalError::System)?;
        // A journal is replaced as a whole, so that no lock is needed to read it.
        let content = Place::below(found, ifindex, About::default()).read();
        let is_there = |name: &str| link::get(ifindex).is_ok_and(|link| link.name == name);
        let content = content.ok().filter(|it| is_there(&it.about.name));
        changes.extend(content.into_iter().flat_map(|it| it.changes));
    }
    Ok(changes)
}

/// Runs `change` while no other process changes the list of irqbalance(1).
///
/// # Errors
/// [`JournalError`]: `change` has not run.
pub(crate) fn change_irqbalance<T>(change: impl FnOnce() -> T) -> Result<T, JournalError> {
    let found = root::state_directory(TUNE, IRQBALANCE).map_err(JournalError::System)?;
    Place::below(found, 0, About::default()).alone(change)
}

/// Removes the journal of a device that is gone.
///
/// # Errors
/// [`JournalError::System`].
pub fn forget(ifindex: u32) -> Result<(), JournalError> {
    let netns = netns::inode().map_err(JournalError::System)?.to_string();
    let found = root::state_directory(TUNE, &netns).map_err(JournalError::System)?;
    let place = Place::below(found, ifindex, About::default());
    let guard = place.take()?;
    let written = place.write(&Content::default());
    place.tidy(&guard);
    written
}

impl Guard {
    /// Whether an owner lives. One that can't be asked counts as alive.
    pub(super) fn lives(&self, owner: Owner) -> bool {
        lock::is_byte_taken(&self.0, owner.number).unwrap_or(true)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // A child that was forked meanwhile has a copy of the descriptor, which would keep it.
        let _ = lock::release_byte(&self.0, TURN);
    }
}

impl Hold {
    /// Whether the calling process is the owner, and not a child that has been forked from it.
    pub fn is_own(&self) -> bool {
        self.owner.pid == process::id()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.is_own() {
            let _ = lock::release_byte(&self.file, self.owner.number);
        }
    }
}

impl JournalError {
    /// The number for errno.
    pub fn errno(&self) -> i32 {
        match self {
            Self::System(error) => {
                let is_forbidden = error.kind() == io::ErrorKind::PermissionDenied;
                let without = if is_forbidden { EACCES } else { EIO };
                error.raw_os_error().unwrap_or(without)
            }
            Self::Busy => EBUSY,
            Self::Malformed(_) => EIO,
        }
    }
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System(error) => write!(f, "nothing is changed without a journal: {error}"),
            Self::Busy => f.write_str("another process has been changing the device for long"),
            Self::Malformed(path) => write!(
                f,
                "{} is no journal of this version: remove it to go on",
                path.display()
            ),
        }
    }
}

impl std::error::Error for JournalError {}

const EIO: i32 = 5;
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EFBIG: i32 = 27;
