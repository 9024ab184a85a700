//! What a node leaves in the kernel, so that it outlives the agent: the link of its BPF program,
//! the BPF program and the maps, pinned in a BPF file system of the agent's own.
//!
//! All is below `/run/fanpcap/cluster`, which only root can enter. A BPF file system has no dots in
//! names.
//!
//! | path | what |
//! | --- | --- |
//! | `bpf/` | the BPF file system |
//! | `bpf/NETNS-IFINDEX/link` | the link of the device |
//! | `bpf/NETNS-IFINDEX/next` | the array with the BPF program that gets the node's packets |
//! | `bpf/NETNS-IFINDEX/ID/` | the BPF program of number ID and its maps |
//! | `NETNS/IFINDEX.lock` | byte 0 is locked by the agent, [`TURN`] by the XDP engine's members |
//! | `NETNS/IFINDEX.state` | what the agent has to remember: see [`State`] |
//! | `mount/lock` | locked while an agent makes or removes its places in these directories |
//!
//! A set of maps is pinned before the link runs its BPF program, and is found by the number of the
//! BPF program that the link runs. So an agent that dies at any step leaves a set that is whole.

mod state;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fanpcap_bpf::MapKind;
use fanpcap_group::root;
use fanpcap_group::selection::{self, BPF, CLUSTER, LINK, NEXT, TURN};
use fanpcap_linux::bpf::{self, Attached, Hook, ObjectArray};
use fanpcap_linux::file::directory::{Access, Directory};
use fanpcap_linux::file::{bpf_fs, lock};
use fanpcap_linux::process::netns;

pub(crate) use state::{Set, State};

/// The directory with the lock for mounting.
const MOUNT: &str = "mount";

/// A device's place in the BPF file system, and the right to change it.
#[derive(Debug)]
pub(crate) struct Hold {
    ifindex: u32,
    directory: Directory,
    path: PathBuf,
    pins: PathBuf,
    is_over: bool,
    /// Its lock ends with the process.
    lock: File,
}

/// What an earlier agent has left.
#[derive(Debug)]
pub(crate) struct Left {
    /// The link, which runs the BPF program.
    pub(crate) link: Attached,
    /// The directory of the BPF program and its maps.
    set: PathBuf,
}

impl Left {
    /// Opens the map or BPF program of this name.
    pub(crate) fn open(&self, name: &str) -> io::Result<OwnedFd> {
        bpf::open_pinned(&self.set.join(name))
    }
}

impl Hold {
    /// Takes the right to change a device's selection.
    ///
    /// # Errors
    ///
    /// Another agent has it, or the directories can't be made.
    pub(crate) fn take(ifindex: u32) -> Result<Self> {
        let netns = netns::inode().context("the network namespace")?.to_string();
        // Without it another agent could remove the directories again, or unmount.
        let _turn = turn()?;
        let (directory, path) = private(&netns)?;
        let name = selection::lock(ifindex);
        let lock = locked(&directory, &name)?;
        let lock = lock.with_context(|| {
            let path = path.display();
            format!("another 'fanpcap node' runs on this device ({path}/{ifindex}.lock)")
        })?;
        let pins = place(&selection::pins(&netns, ifindex)).inspect_err(|_| {
            let _ = directory.remove_file(OsStr::new(&name));
        })?;
        Ok(Self {
            ifindex,
            directory,
            path,
            pins,
            is_over: false,
            lock,
        })
    }

    /// What an earlier agent has left on the device. Removes what is left of a device that is gone.
    pub(crate) fn left(&self) -> Result<Option<Left>> {
        let pin = self.pins.join(LINK);
        let fd = match bpf::open_pinned(&pin) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.forget_all_but(None)?;
                return Ok(None);
            }
            opened => opened.with_context(|| format!("opening {}", pin.display()))?,
        };
        let link = Attached::open(fd, Hook::Driver).context("the link of an earlier agent")?;
        if link.ifindex()? != self.ifindex {
            self.remove()?;
            make(&self.pins)?;
            return Ok(None);
        }
        let set = self.set(link.program_id()?);
        Ok(Some(Left { link, set }))
    }

    /// The array with the BPF program that gets the node's packets. It stays through all BPF
    /// programs of the device, and so does what the XDP engine has put there.
    pub(crate) fn next(&self) -> Result<ObjectArray> {
        let path = self.pins.join(NEXT);
        let next = match bpf::open_pinned(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let next = ObjectArray::create("fanpcap_next", MapKind::ProgArray, 1);
                next.and_then(|next| bpf::pin(next.as_fd(), &path).map(|()| next))
            }
            opened => opened.and_then(|fd| ObjectArray::open(fd, MapKind::ProgArray, 1)),
        };
        next.with_context(|| format!("the array {}", path.display()))
    }

    /// Whether an application captures by the XDP engine behind the selection.
    pub(crate) fn has_engine(&self) -> Result<bool> {
        lock::is_byte_taken(&self.lock, TURN).context("asking for the engine's lock")
    }

    /// Pins the BPF program of this number and its maps, before a link runs it.
    pub(crate) fn keep(&self, program: u32, objects: &[(&str, BorrowedFd<'_>)]) -> Result<()> {
        let set = self.set(program);
        make(&set)?;
        for (name, object) in objects {
            let path = set.join(name);
            // The number of a BPF program may come again, once the program is gone.
            let _ = fs::remove_file(&path);
            let pinned = bpf::pin(*object, &path);
            pinned.with_context(|| format!("pinning {}", path.display()))?;
        }
        Ok(())
    }

    /// Pins the link.
    pub(crate) fn keep_link(&self, link: BorrowedFd<'_>) -> Result<()> {
        let path = self.pins.join(LINK);
        bpf::pin(link, &path).with_context(|| format!("pinning {}", path.display()))
    }

    /// Removes the sets of all BPF programs but this one, which the link runs. Without one, the
    /// array of the next BPF program as well.
    pub(crate) fn forget_all_but(&self, program: Option<u32>) -> Result<()> {
        let kept = program.map(|program| program.to_string());
        for entry in fs::read_dir(&self.pins).context("reading the pins")? {
            let path = entry?.path();
            let is_kept = path.file_name() == kept.as_deref().map(OsStr::new);
            if path.is_dir() && !is_kept {
                remove_set(&path)?;
            }
        }
        if program.is_none() {
            remove_if_there(&self.pins.join(NEXT))?;
        }
        Ok(())
    }

    /// Removes everything, the link first: then packets of other nodes pass again.
    pub(crate) fn remove(&self) -> Result<()> {
        remove_if_there(&self.pins.join(LINK))?;
        self.forget_all_but(None)?;
        fs::remove_dir(&self.pins).with_context(|| format!("removing {}", self.pins.display()))?;
        self.forget_state()
    }

    /// What the agent remembers; `None` if nothing, or nothing that this version reads.
    pub(crate) fn state(&self) -> Result<Option<State>> {
        let path = self.path.join(self.state_name());
        match fs::read_to_string(&path) {
            Ok(text) => Ok(State::parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// Remembers `state`: a crash leaves the former or this one.
    pub(crate) fn set_state(&self, state: &State) -> Result<()> {
        let (path, new) = (
            self.path.join(self.state_name()),
            self.path.join(format!("{}.new", self.ifindex)),
        );
        fs::write(&new, state.text()).with_context(|| format!("writing {}", new.display()))?;
        fs::rename(&new, &path).with_context(|| format!("writing {}", path.display()))
    }

    fn forget_state(&self) -> Result<()> {
        remove_if_there(&self.path.join(self.state_name()))
    }

    fn state_name(&self) -> String {
        format!("{}.state", self.ifindex)
    }

    fn set(&self, program: u32) -> PathBuf {
        self.pins.join(program.to_string())
    }

    /// Removes the lock, after [`Hold::remove`], and the BPF file system with the last device.
    pub(crate) fn end(mut self) -> Result<()> {
        self.is_over = true;
        let turn = turn()?;
        self.clear(&turn)
    }

    /// Removes the lock, and the BPF file system with the last device.
    fn clear(&self, _turn: &File) -> Result<()> {
        let lock = selection::lock(self.ifindex);
        let _ = self.directory.remove_file(OsStr::new(&lock));
        let _ = fs::remove_dir(&self.path);
        let (_, mount) = private(BPF)?;
        let is_device =
            |entry: io::Result<fs::DirEntry>| Ok::<_, io::Error>(entry?.path().is_dir());
        // The kernel has files of its own there.
        let devices = fs::read_dir(&mount)?
            .map(is_device)
            .collect::<io::Result<Vec<bool>>>()?;
        let is_empty = !devices.contains(&true);
        if is_empty && bpf_fs::is_bpf(&mount)? {
            bpf_fs::unmount(&mount).with_context(|| format!("unmounting {}", mount.display()))?;
        }
        Ok(())
    }

    /// Removes the device's places if nothing was kept there, and the lock with them.
    fn clear_if_empty(&self) -> Result<()> {
        let turn = turn()?;
        match fs::remove_dir(&self.pins) {
            Ok(()) => self.clear(&turn),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_over {
            // An agent that never selected leaves no trace. One that did leaves its pins.
            let _ = self.clear_if_empty();
        }
    }
}

/// Whether an agent has the right to change a device's selection, in the calling thread's network
/// namespace. Changes nothing.
pub(crate) fn has_agent(ifindex: u32) -> io::Result<bool> {
    let netns = netns::inode()?.to_string();
    let cluster = root::root()?.with_file_name(CLUSTER);
    match File::open(cluster.join(netns).join(format!("{ifindex}.lock"))) {
        Ok(file) => lock::is_taken(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// A directory below the agents' own.
fn private(part: &str) -> Result<(Directory, PathBuf)> {
    root::private_directory(CLUSTER, part).context("the directory of the cluster's agents")
}

/// The file of this name with its lock; `None` if another process has the lock.
fn locked(directory: &Directory, name: &str) -> Result<Option<File>> {
    let file = directory.file(OsStr::new(name), Access::Make);
    let file = file.with_context(|| format!("opening {name}"))?;
    let file = file.with_context(|| format!("{name} is no regular file"))?;
    Ok(lock::try_take(&file)?.then_some(file))
}

/// The right to make and to remove places of devices: it ends when the file is dropped.
fn turn() -> Result<File> {
    let (directory, path) = private(MOUNT)?;
    for _ in 0..TURNS {
        if let Some(turn) = locked(&directory, "lock")? {
            return Ok(turn);
        }
        std::thread::sleep(PAUSE);
    }
    let path = path.display();
    bail!("another agent has held {path}/lock for too long")
}

/// The BPF file system, mounted if it is not.
fn mounted() -> Result<PathBuf> {
    let (_, mount) = private(BPF)?;
    if !bpf_fs::is_bpf(&mount).with_context(|| mount.display().to_string())? {
        let done = bpf_fs::mount(&mount);
        done.with_context(|| format!("mounting a BPF file system on {}", mount.display()))?;
    }
    Ok(mount)
}

/// Makes a device's place in the BPF file system.
fn place(name: &str) -> Result<PathBuf> {
    let pins = mounted()?.join(name);
    make(&pins)?;
    Ok(pins)
}

/// How often and how long to wait for another agent's turn.
const TURNS: u32 = 500;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

fn make(path: &Path) -> Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            bail!("making {}: {error}", path.display())
        }
        _ => Ok(()),
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            bail!("removing {}: {error}", path.display())
        }
        _ => Ok(()),
    }
}

fn remove_set(set: &Path) -> Result<()> {
    for entry in fs::read_dir(set).with_context(|| format!("reading {}", set.display()))? {
        remove_if_there(&entry?.path())?;
    }
    fs::remove_dir(set).with_context(|| format!("removing {}", set.display()))
}
