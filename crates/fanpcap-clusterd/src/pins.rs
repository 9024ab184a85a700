//! The objects that a node keeps in the kernel, so that they outlive the agent: the link of its BPF
//! program, the BPF program and the maps. They are pinned in a BPF file system of their own.
//!
//! All paths are below `/run/fanpcap-state/cluster`. Only root can enter this directory, and
//! containers do not get it. Files are opened relative to descriptors of their directories, and
//! symbolic links are not followed. Names in a BPF file system can't contain dots.
//!
//! | path | what |
//! | --- | --- |
//! | `bpf/` | the BPF file system |
//! | `bpf/NETNS-IFINDEX/link` | the link of the device |
//! | `bpf/NETNS-IFINDEX/next` | the array with the BPF program that gets the node's packets |
//! | `bpf/NETNS-IFINDEX/ID/` | the BPF program of number ID and its maps |
//! | `NETNS/IFINDEX.lock` | byte 0 is locked by the agent, [`TURN`] by the XDP engine's members |
//! | `NETNS/IFINDEX.state` | the agent's state: see [`AgentState`] |
//! | `mount/lock` | locked while an agent makes or removes its directories here |
//!
//! Before the link runs a BPF program, its maps are pinned under the BPF program's id. The agent
//! finds them by the id of the link's BPF program. So if an agent dies at any step, no map is
//! missing.

mod state;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use fanpcap_bpf::MapKind;
use fanpcap_engine::root;
use fanpcap_linux::bpf::{self, Attached, Hook, ObjectArray};
use fanpcap_linux::file::directory::{Access, Directory};
use fanpcap_linux::file::{bpf_fs, lock};
use fanpcap_linux::interface;
use fanpcap_linux::process::netns;
use fanpcap_xdp::TURN;
use fanpcap_xdp::selection::{self, BPF, CLUSTER, LINK, NEXT};

pub(crate) use state::{AgentState, ProgramSet};

/// The directory with the lock for mounting.
const MOUNT: &str = "mount";

/// A device's pinned objects, and the lock that a process must hold to change them.
#[derive(Debug)]
pub(crate) struct DevicePins {
    ifindex: u32,
    netns: String,
    directory: Directory,
    path: PathBuf,
    pins: Directory,
    is_over: bool,
    /// The device's lock file, locked until this process ends.
    lock: File,
}

/// The pinned objects that an earlier agent left on a device.
#[derive(Debug)]
pub(crate) struct EarlierAgent {
    /// The link, which runs the BPF program.
    pub(crate) link: Attached,
    /// The directory of the BPF program and its maps.
    set: Option<Directory>,
}

impl EarlierAgent {
    /// Opens the map or BPF program that is pinned by this name.
    pub(crate) fn open(&self, name: &str) -> io::Result<OwnedFd> {
        open(self.set.as_ref().ok_or(io::ErrorKind::NotFound)?, name)
    }
}

impl DevicePins {
    /// Takes the lock of a device's selection. Fails if another agent has the lock.
    pub(crate) fn take(ifindex: u32) -> Result<Self> {
        let netns = netns::inode().context("the network namespace")?.to_string();
        // Without this lock, another agent could remove the directories, or unmount them.
        let _turn = turn()?;
        let (directory, path) = private(&netns)?;
        let name = selection::lock(ifindex);
        let lock = lock_file(&directory, &name)?;
        ensure!(lock::try_take(&lock)?, in_use(&path, ifindex, &lock));
        let pins = place(&selection::pins(&netns, ifindex)).inspect_err(|_| {
            let _ = directory.remove_file(OsStr::new(&name));
        })?;
        // A failure is harmless: the pins of devices that are gone use memory until the next boot.
        let _ = remove_gone(&netns);
        Ok(Self {
            ifindex,
            netns,
            directory,
            path,
            pins,
            is_over: false,
            lock,
        })
    }

    /// Opens the objects of an earlier agent. Removes objects of a device that is gone.
    pub(crate) fn earlier_agent(&self) -> Result<Option<EarlierAgent>> {
        let fd = match open(&self.pins, LINK) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.forget_all_but(None)?;
                return Ok(None);
            }
            opened => opened.context("opening the pin of an earlier agent's link")?,
        };
        let link = Attached::open(fd, Hook::Driver).context("the link of an earlier agent")?;
        if link.ifindex()? != self.ifindex {
            self.remove_pins()?;
            return Ok(None);
        }
        let set = link.program_id()?.to_string();
        let set = self.pins.enter(OsStr::new(&set)).ok();
        Ok(Some(EarlierAgent { link, set }))
    }

    /// The array with the BPF program that gets the node's packets. All BPF programs of the device
    /// share this array, so the XDP engine's entry outlasts them.
    pub(crate) fn next(&self) -> Result<ObjectArray> {
        let next = match open(&self.pins, NEXT) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let next = ObjectArray::create("fanpcap_next", MapKind::ProgArray, 1)?;
                pin(&self.pins, NEXT, next.as_fd())?;
                return Ok(next);
            }
            opened => opened.and_then(|fd| ObjectArray::open(fd, MapKind::ProgArray, 1)),
        };
        next.context("the pinned array of the BPF program that gets the packets")
    }

    /// Whether an application captures with the XDP engine behind the selection.
    pub(crate) fn has_engine(&self) -> Result<bool> {
        lock::is_byte_taken(&self.lock, TURN).context("asking for the engine's lock")
    }

    /// Pins the BPF program with the id `program` and its maps. Call this before a link runs it.
    pub(crate) fn keep(&self, program: u32, objects: &[(&str, BorrowedFd<'_>)]) -> Result<()> {
        let set = make(&self.pins, &program.to_string())?;
        for (name, object) in objects {
            // An old pin may exist, because the kernel reuses the ids of removed BPF programs.
            let _ = set.remove_file(OsStr::new(name));
            pin(&set, name, *object)?;
        }
        Ok(())
    }

    pub(crate) fn keep_link(&self, link: BorrowedFd<'_>) -> Result<()> {
        pin(&self.pins, LINK, link)
    }

    /// Removes the sets of all BPF programs except `program`, which the link runs. If `program` is
    /// `None`, also removes the pin of the array [`DevicePins::next`].
    pub(crate) fn forget_all_but(&self, program: Option<u32>) -> Result<()> {
        forget_sets(&self.pins, program)?;
        match program {
            None => remove_if_there(&self.pins, NEXT),
            Some(_) => Ok(()),
        }
    }

    /// Removes all pins. Without the link, the device passes other nodes' packets again.
    pub(crate) fn remove(&self) -> Result<()> {
        self.remove_pins()?;
        let name = selection::pins(&self.netns, self.ifindex);
        let removed = private(BPF)?.0.remove_directory(OsStr::new(&name));
        removed.with_context(|| format!("removing the pins {name}"))
    }

    /// Removes the link's pin, and then all other pins.
    pub(crate) fn forget_link(&self) -> Result<()> {
        remove_if_there(&self.pins, LINK)?;
        self.forget_all_but(None)
    }

    fn remove_pins(&self) -> Result<()> {
        self.forget_link()?;
        remove_if_there(&self.directory, &state_name(self.ifindex))
    }

    /// The agent's state; `None` if no state is stored, or if this version can't read it.
    pub(crate) fn state(&self) -> Result<Option<AgentState>> {
        let name = state_name(self.ifindex);
        read_state(&self.directory, &name).with_context(|| self.blame("reading", &name))
    }

    /// Stores `state`. After a crash, the file has the earlier state or this one.
    pub(crate) fn set_state(&self, state: &AgentState) -> Result<()> {
        let (name, new) = (state_name(self.ifindex), format!("{}.new", self.ifindex));
        // A crash of an earlier agent may have left a file with this name.
        remove_if_there(&self.directory, &new)?;
        let file = self.directory.create(OsStr::new(&new), 0o600);
        let written = file.and_then(|mut file| file.write_all(state.text().as_bytes()));
        let (from, to) = (OsStr::new(&new), OsStr::new(&name));
        let written = written.and_then(|()| self.directory.rename(from, to));
        written.with_context(|| self.blame("writing", &name))
    }

    fn blame(&self, doing: &str, name: &str) -> String {
        format!("{doing} {}", self.path.join(name).display())
    }

    /// Removes the lock, and the BPF file system if it is empty. Call [`DevicePins::remove`] first.
    pub(crate) fn end(mut self) -> Result<()> {
        self.is_over = true;
        let turn = turn()?;
        self.clear(&turn)
    }

    /// Removes the device's lock file. For the last device, also removes the BPF file system.
    fn clear(&self, _turn: &File) -> Result<()> {
        let lock = selection::lock(self.ifindex);
        let _ = self.directory.remove_file(OsStr::new(&lock));
        let cluster = root::find_state(CLUSTER)?;
        let _ = cluster.remove_directory(OsStr::new(&self.netns));
        unmount_if_empty(&cluster)
    }

    /// If nothing is pinned in the device's directory, removes this directory and the lock.
    fn clear_if_empty(&self) -> Result<()> {
        let turn = turn()?;
        let name = selection::pins(&self.netns, self.ifindex);
        match private(BPF)?.0.remove_directory(OsStr::new(&name)) {
            Ok(()) => self.clear(&turn),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for DevicePins {
    fn drop(&mut self) {
        if !self.is_over {
            // If this agent never selected packets, it leaves no files. If this agent has selected
            // packets, its pins stay.
            let _ = self.clear_if_empty();
        }
    }
}

/// Whether an agent has the lock of a device's selection, in the thread's network namespace.
pub(crate) fn has_agent(ifindex: u32) -> io::Result<bool> {
    let netns = netns::inode()?.to_string();
    let name = selection::lock(ifindex);
    let found = root::find_state(CLUSTER)
        .and_then(|cluster| root::enter(&cluster, &netns)?.file(OsStr::new(&name), Access::Read));
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => found?.as_ref().map_or(Ok(false), lock::is_taken),
    }
}

/// Text that names the process with the lock of a device, if /proc shows that process.
fn in_use(directory: &Path, ifindex: u32, file: &File) -> String {
    let path = directory.join(selection::lock(ifindex));
    let process = lock::holder(file, 0).map(|it| format!("process {} ", it.pid));
    format!(
        "another 'fanpcap node' runs on this device ({}locks {})",
        process.unwrap_or_default(),
        path.display()
    )
}

/// A directory below the directory of the agents.
fn private(part: &str) -> Result<(Directory, PathBuf)> {
    root::state_directory(CLUSTER, part).context("opening the cluster agents' directory")
}

/// The file with this name. Makes the file if it does not exist.
fn lock_file(directory: &Directory, name: &str) -> Result<File> {
    let file = directory.file(OsStr::new(name), Access::Make);
    let file = file.with_context(|| format!("opening {name}"))?;
    file.with_context(|| format!("{name} is no regular file"))
}

/// Locks the file with this name; `None` if another process has the lock.
fn try_lock(directory: &Directory, name: &str) -> Result<Option<File>> {
    let file = lock_file(directory, name)?;
    Ok(lock::try_take(&file)?.then_some(file))
}

/// Takes the lock for making and removing devices' directories. Dropping the file unlocks it.
fn turn() -> Result<File> {
    let (directory, path) = private(MOUNT)?;
    for _ in 0..TURNS {
        if let Some(turn) = try_lock(&directory, "lock")? {
            return Ok(turn);
        }
        std::thread::sleep(PAUSE);
    }
    let path = path.display();
    bail!("another agent has held {path}/lock for too long")
}

/// Removes what agents have left for devices that are gone from this network namespace, or that now
/// have another index. The caller must hold the lock of [`turn`].
fn remove_gone(netns: &str) -> Result<()> {
    let (mount, (files, _)) = (private(BPF)?.0, private(netns)?);
    for name in mount.names() {
        let ifindex = name.to_str().and_then(|it| it.strip_prefix(netns));
        let ifindex = ifindex.and_then(|it| it.strip_prefix('-')?.parse().ok());
        if let Some(ifindex) = ifindex {
            // A failure for one device must not prevent the removal for other devices.
            let _ = remove_if_gone(&mount, &files, &name, ifindex);
        }
    }
    Ok(())
}

fn remove_if_gone(mount: &Directory, files: &Directory, name: &OsStr, ifindex: u32) -> Result<()> {
    if interface::find_name(ifindex)?.is_some() {
        return Ok(());
    }
    let lock = selection::lock(ifindex);
    let Some(_lock) = try_lock(files, &lock)? else {
        return Ok(());
    };
    let pins = mount.enter(name)?;
    // A device that was moved to another namespace still runs its selection.
    let has_link = match open(&pins, LINK) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        opened => Attached::open(opened?, Hook::Driver)?.ifindex()? != 0,
    };
    if has_link {
        return Ok(());
    }
    remove_if_there(&pins, LINK)?;
    remove_if_there(&pins, NEXT)?;
    forget_sets(&pins, None)?;
    mount.remove_directory(name)?;
    remove_if_there(files, &state_name(ifindex))?;
    remove_if_there(files, &lock)
}

/// Makes a device's directory in the BPF file system, which is mounted first if needed.
fn place(name: &str) -> Result<Directory> {
    let (mount, path) = private(BPF)?;
    let own = mount.path_to(OsStr::new("."))?;
    if bpf_fs::is_bpf(&own).with_context(|| path.display().to_string())? {
        return make(&mount, name);
    }
    let done = bpf_fs::mount(&own);
    done.with_context(|| format!("mounting a BPF file system on {}", path.display()))?;
    // `mount` still refers to the directory below the mount, so the path is opened again.
    make(&private(BPF)?.0, name)
}

/// Unmounts the BPF file system if no device has a directory there.
fn unmount_if_empty(cluster: &Directory) -> Result<()> {
    let mount = root::enter(cluster, BPF)?;
    let is_directory = |name: &OsStr| mount.about(name).is_ok_and(|about| about.is_dir());
    // The mounted file system also has files of the kernel; only directories belong to agents.
    let is_empty = !mount.names().any(|name| is_directory(&name));
    let is_mounted = bpf_fs::is_bpf(&mount.path_to(OsStr::new("."))?)?;
    drop(mount);
    if is_empty && is_mounted {
        let done = bpf_fs::unmount(&cluster.path_to(OsStr::new(BPF))?);
        done.context("unmounting the BPF file system")?;
    }
    Ok(())
}

/// An agent tries this many times to get the lock, and waits for [`PAUSE`] after each try.
const TURNS: u32 = 500;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

const STATE_LEN_MAX: u64 = 1 << 16;

fn state_name(ifindex: u32) -> String {
    format!("{ifindex}.state")
}

/// The state in a file; `None` if there is no file, or if this version can't read it.
fn read_state(directory: &Directory, name: &str) -> io::Result<Option<AgentState>> {
    let file = match directory.file(OsStr::new(name), Access::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut text = String::new();
    match file {
        Some(file) => file.take(STATE_LEN_MAX).read_to_string(&mut text)?,
        None => return Ok(None),
    };
    Ok(AgentState::parse(&text))
}

fn open(pins: &Directory, name: &str) -> io::Result<OwnedFd> {
    bpf::open_pinned(&pins.path_to(OsStr::new(name))?)
}

fn pin(pins: &Directory, name: &str, object: BorrowedFd<'_>) -> Result<()> {
    let path = pins.path_to(OsStr::new(name))?;
    bpf::pin(object, &path).with_context(|| format!("pinning {name}"))
}

fn make(parent: &Directory, name: &str) -> Result<Directory> {
    match parent.make_private(OsStr::new(name)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            bail!("making {name}: {error}")
        }
        _ => root::enter(parent, name).with_context(|| format!("opening {name}")),
    }
}

fn remove_if_there(directory: &Directory, name: &str) -> Result<()> {
    match directory.remove_file(OsStr::new(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => bail!("removing {name}: {error}"),
        _ => Ok(()),
    }
}

/// Removes the sets of all BPF programs except `kept`. The names of these directories are numbers,
/// and so are the names of the pins in them. Other objects are not the agent's, and stay.
fn forget_sets(pins: &Directory, kept: Option<u32>) -> Result<()> {
    let number = |name: &OsStr| name.to_str()?.parse::<u32>().ok();
    for name in pins.names() {
        if number(&name).is_none_or(|it| Some(it) == kept) {
            continue;
        }
        let set = match pins.enter(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => continue,
            entered => {
                entered.with_context(|| format!("opening the set {}", name.to_string_lossy()))?
            }
        };
        for object in set.names().filter(|name| number(name).is_some()) {
            set.remove_file(&object).context("removing a pin")?;
        }
        let removed = pins.remove_directory(&name);
        removed.with_context(|| format!("removing the set {}", name.to_string_lossy()))?;
    }
    Ok(())
}
