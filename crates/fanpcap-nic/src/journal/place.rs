//! The directory of a device's journal, and its locks. The process that changes the journal holds
//! one lock. Each owner of changes holds another lock.
//!
//! The files `<ifindex>.journal` and `<ifindex>.lock` are in `fanpcap-state/tune/<netns>` below
//! `/run` (below `/dev/shm` if `/run` is not in memory), which only root can enter. Byte 0 of the
//! lock file is the lock for changes. Each living owner locks a byte of its own. By these locks,
//! processes in other PID namespaces can also detect which owners live. The directory `irqbalance`,
//! beside the directories of the network namespaces, has one more lock. The process that changes
//! the list of the interrupts that irqbalance(1) must not move holds this lock. All devices share
//! this list.

use super::entry::{About, Change, Content, Owner};
use crate::device::Device;
use crate::error::DeviceError;
use fanpcap_engine::root;
use fanpcap_linux::file::directory::{Access, Directory};
use fanpcap_linux::file::{lock, shared};
use fanpcap_linux::netlink::link;
use fanpcap_linux::process::netns;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process;
use std::thread;
use std::time::Duration;

/// The place of a device's journal.
#[derive(Debug)]
pub struct Place {
    directory: Directory,
    path: PathBuf,
    /// Whether the directory is removed once it is empty.
    is_own: bool,
    ifindex: u32,
    pub(super) about: About,
}

/// An owner's hold on its changes. The hold ends when the process ends, for any reason. The next
/// process that opens the journal can then undo the changes.
#[derive(Debug)]
pub struct Hold {
    file: File,
    pub(super) owner: Owner,
}

/// The right to change a device and the device's journal. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Guard(File);

/// The directory of the journals of all network namespaces.
const TUNE: &str = "tune";

/// The directory of the lock for changing the list of the interrupts that irqbalance(1) must not
/// move. No namespace's directory has this name, because their names are numbers.
const IRQBALANCE: &str = "irqbalance";

/// The byte of the lock file that a process locks to change the device and its journal.
const TURN: u32 = 0;

/// Limit on the number of owners of a device.
const OWNERS_MAX: u32 = 65_536;

/// Number of attempts to get the lock, and milliseconds between two attempts. The holder of the
/// lock may need seconds, because a driver may need seconds to set up its queues.
const PATIENCE: u32 = 1000;
const LOOK_MS: u64 = 10;

/// Limit on the length of a journal.
const BYTES_MAX: u64 = 8 << 20;

impl Place {
    /// The place of this device's journal. Creates the directories if needed.
    ///
    /// # Errors
    /// [`DeviceError::Journal`].
    pub fn of(device: &Device) -> Result<Self, DeviceError> {
        let found = directory()?;
        let about = About {
            name: device.name.clone(),
            address: device.address.clone(),
            driver: device.driver.clone(),
        };
        Ok(Self {
            is_own: true,
            ..Self::below(found, device.ifindex, about)
        })
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

    /// Waits until this process may change the device.
    pub(super) fn take(&self) -> Result<Guard, DeviceError> {
        let mut file = self.locks()?;
        for _ in 0..PATIENCE {
            if !lock::try_take_byte(&file, TURN).map_err(DeviceError::Journal)? {
                thread::sleep(Duration::from_millis(LOOK_MS));
            } else if self.is_there(&file) {
                return Ok(Guard(file));
            } else {
                file = self.locks()?;
            }
        }
        Err(DeviceError::Busy)
    }

    /// Runs `change` while this process may change the device. Then removes the lock file if no
    /// owner needs it.
    pub(super) fn alone<T>(&self, change: impl FnOnce() -> T) -> Result<T, DeviceError> {
        let guard = self.take()?;
        let changed = change();
        self.tidy(&guard);
        Ok(changed)
    }

    fn lock_name(&self) -> String {
        format!("{}.lock", self.ifindex)
    }

    /// Whether the lock file still has its name. If `tidy` has removed the name, other processes
    /// lock another file, so this lock excludes nobody.
    fn is_there(&self, file: &File) -> bool {
        let named = self.directory.about(OsStr::new(&self.lock_name()));
        let both = named.and_then(|named| Ok((named.ino(), file.metadata()?.ino())));
        both.is_ok_and(|(named, own)| named == own)
    }

    /// Removes the lock file unless an owner holds a lock in it. Then removes the directory if it
    /// is empty.
    pub(super) fn tidy(&self, guard: &Guard) {
        if !lock::is_any_taken(&guard.0, TURN + 1).unwrap_or(true) {
            let _ = self.directory.remove_file(OsStr::new(&self.lock_name()));
        }
        if self.is_own {
            // rmdir(2) fails, and so removes nothing, while the directory has other files.
            let _ = fs::remove_dir(&self.path);
        }
    }

    fn locks(&self) -> Result<File, DeviceError> {
        let name = self.lock_name();
        let file = self.directory.file(OsStr::new(&name), Access::Make);
        let file = file.and_then(|file| file.ok_or_else(|| io::ErrorKind::InvalidData.into()));
        file.map_err(DeviceError::Journal)
    }

    fn name(&self) -> String {
        format!("{}.journal", self.ifindex)
    }

    /// The content of the journal. If there is no journal file, the content has no changes.
    pub(super) fn read(&self) -> Result<Content, DeviceError> {
        let name = self.name();
        let file = match self.directory.file(OsStr::new(&name), Access::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => opened.map_err(DeviceError::Journal)?,
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
        content.ok_or_else(|| DeviceError::Malformed(self.path()))
    }

    /// Writes the journal. After a crash, the file is either the complete former journal or the
    /// complete new one. Removes the file if `content` has no changes.
    pub(super) fn write(&self, content: &Content) -> Result<(), DeviceError> {
        let name = self.name();
        let name = OsStr::new(&name);
        let written = match content.changes.is_empty() {
            true => self.directory.remove_file(name),
            false => self.replace(name, &content.text()),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            written => written.map_err(DeviceError::Journal),
        }
    }

    fn replace(&self, name: &OsStr, text: &str) -> io::Result<()> {
        let new = format!("{}.new", self.ifindex);
        let new = OsStr::new(&new);
        if shared::file_size_limit()? < text.len() as u64 {
            // The kernel would kill the process by `SIGXFSZ` if it wrote the journal.
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        // A process that crashed in this function may have left the file `new`.
        let _ = self.directory.remove_file(new);
        let mut file = self.directory.create(new, 0o600)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        super::step();
        self.directory.rename(new, name)
    }

    /// Makes the hold of a new owner. The owner gets a number that no change in the journal has.
    pub(super) fn hold(&self, content: &Content) -> Result<Hold, DeviceError> {
        let file = self.locks()?;
        let mut owners = content.changes.iter().flat_map(|change| &change.owners);
        let used: Vec<u32> = owners.by_ref().map(|owner| owner.number).collect();
        for number in (TURN + 1..OWNERS_MAX).filter(|number| !used.contains(number)) {
            if lock::try_take_byte(&file, number).map_err(DeviceError::Journal)? {
                let pid = process::id();
                let owner = Owner { number, pid };
                return Ok(Hold { file, owner });
            }
        }
        Err(DeviceError::Busy)
    }
}

/// The directory of the journals of the calling thread's network namespace. Creates it if needed.
fn directory() -> Result<(Directory, PathBuf), DeviceError> {
    let found = netns::inode().and_then(|netns| root::state_directory(TUNE, &netns.to_string()));
    found.map_err(DeviceError::Journal)
}

/// The interface indices of the journals in the calling thread's network namespace. Creates no
/// directories.
///
/// # Errors
/// [`DeviceError::Journal`].
pub fn journals() -> Result<Vec<u32>, DeviceError> {
    let netns = netns::inode().map_err(DeviceError::Journal)?.to_string();
    let all = match root::find_state(TUNE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(DeviceError::Journal)?,
    };
    if all.about(OsStr::new(&netns)).is_err() {
        return Ok(Vec::new());
    }
    let found = directory()?;
    let number = |name: OsString| name.to_str()?.strip_suffix(".journal")?.parse().ok();
    let mut numbers: Vec<u32> = found.0.names().filter_map(number).collect();
    if numbers.is_empty() {
        // rmdir(2) fails, and so removes nothing, while the directory has files.
        let _ = fs::remove_dir(&found.1);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The changes in the journals of all devices of the calling thread's network namespace, each with
/// its device's interface index. Creates no directories.
///
/// # Errors
/// [`DeviceError::Journal`].
pub fn all_changes() -> Result<Vec<(u32, Change)>, DeviceError> {
    let mut changes = Vec::new();
    for ifindex in journals()? {
        // A journal is replaced as a whole, so reading it needs no lock.
        let content = Place::below(directory()?, ifindex, About::default()).read();
        let is_there = |name: &str| link::get(ifindex).is_ok_and(|link| link.name == name);
        let content = content.ok().filter(|it| is_there(&it.about.name));
        let found = content.into_iter().flat_map(|it| it.changes);
        changes.extend(found.map(|change| (ifindex, change)));
    }
    Ok(changes)
}

/// Runs `change` while no other process changes the list of irqbalance(1).
///
/// # Errors
/// [`DeviceError`]: `change` was not run.
pub(crate) fn change_irqbalance<T>(change: impl FnOnce() -> T) -> Result<T, DeviceError> {
    let found = root::state_directory(TUNE, IRQBALANCE).map_err(DeviceError::Journal)?;
    Place::below(found, 0, About::default()).alone(change)
}

/// Removes the journal of a device that is gone.
///
/// # Errors
/// [`DeviceError`].
pub fn forget(ifindex: u32) -> Result<(), DeviceError> {
    let place = Place::below(directory()?, ifindex, About::default());
    place.alone(|| place.write(&Content::default()))?
}

impl Guard {
    /// Whether an owner lives; true if that can't be found out.
    pub(super) fn lives(&self, owner: Owner) -> bool {
        lock::is_byte_taken(&self.0, owner.number).unwrap_or(true)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Without this call, a child that was forked while the lock was held would keep the lock by
        // its copy of the descriptor.
        let _ = lock::release_byte(&self.0, TURN);
    }
}

impl Hold {
    /// Whether the calling process is the owner, not a forked child of the owner.
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
