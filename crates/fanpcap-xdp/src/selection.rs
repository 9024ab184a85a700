//! The engine behind the selection of a cluster's node. The node's BPF program is attached to the
//! device. It passes the packets that it selects to the BPF program in an array.
//!
//! The array is pinned, so it keeps its entry when the engine's last member dies. The entry is
//! therefore [`step`], a BPF program that calls the BPF program in the engine's own array. When the
//! last descriptor of the engine's array is closed, the kernel empties that array, and the host
//! gets the packets.
//!
//! `fanpcap node` pins its selection in a BPF file system. This file system is mounted below a
//! directory that only root can enter.

use fanpcap_bpf::assembler::*;
use fanpcap_bpf::kernel::*;
use fanpcap_bpf::{MapKind, MapSpec, Object, ProgramKind};
use fanpcap_engine::root::{enter, find_state};
use fanpcap_linux::bpf::{Attached, Hook, LoadError, Loaded, LoadedProgram};
use fanpcap_linux::bpf::{ObjectArray, open_pinned};
use fanpcap_linux::file::directory::Access;
use fanpcap_linux::file::lock::try_take_byte;
use fanpcap_linux::process::netns;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The directory of the state of all nodes, in the administrator's state directory.
pub const CLUSTER: &str = "cluster";
/// The directory on which the BPF file system is mounted, in [`CLUSTER`].
pub const BPF: &str = "bpf";
/// The name of the pin of a device's link.
pub const LINK: &str = "link";
/// The name of the pin of the array with the BPF program that gets the packets.
pub const NEXT: &str = "next";

/// Returns the name of a device's directory of pins. `netns` is the inode number of the device's
/// network namespace.
pub fn pins(netns: &str, ifindex: u32) -> String {
    format!("{netns}-{ifindex}")
}

/// Returns the name of the lock file in the network namespace's directory. The node locks the
/// file's first byte, and the engine the second byte.
pub fn lock(ifindex: u32) -> String {
    format!("{ifindex}.lock")
}

/// Opens the selection on a device of the calling thread's network namespace.
///
/// # Errors
/// `ENOENT` when the device has no selection, `EACCES` for users other than root.
pub(crate) fn find(ifindex: u32) -> io::Result<Selection> {
    let cluster = find_state(CLUSTER)?;
    let netns = netns::inode()?.to_string();
    let pins = enter(&enter(&cluster, BPF)?, &pins(&netns, ifindex))?;
    let link = open_pinned(&pins.path_to(OsStr::new(LINK))?)?;
    let next = open_pinned(&pins.path_to(OsStr::new(NEXT))?)?;
    let turn = enter(&cluster, &netns)?.file(OsStr::new(&lock(ifindex)), Access::Write)?;
    Ok(Selection {
        link: Attached::open(link, Hook::Driver)?,
        next: ObjectArray::open(next, MapKind::ProgArray, 1)?,
        turn: turn.ok_or(io::ErrorKind::NotFound)?,
    })
}

/// The objects that a node provides for the engine.
pub struct Selection {
    /// The link of the node's BPF program.
    pub link: Attached,
    /// The array of one entry, whose BPF program gets the node's packets.
    pub next: ObjectArray,
    /// A file, open for writing. As long as the engine has a member, the engine holds the lock of
    /// the file's byte [`TURN`].
    pub turn: File,
}

/// The byte of the file [`Selection::turn`] that the engine locks.
pub const TURN: u32 = 1;

/// The engine's objects behind a selection that the engine has taken.
pub(crate) struct Behind {
    pub(crate) entry: ObjectArray,
    /// The open file description that holds the lock. All members have a descriptor of it.
    pub(crate) turn: OwnedFd,
}

impl Selection {
    /// Whether the selection's BPF program has the id `program`, and no member of the engine is
    /// behind the selection. If both are true, this value holds the lock afterwards.
    pub(crate) fn is_free(&self, program: u32) -> bool {
        let is_it = self.link.program_id().is_ok_and(|it| it == program);
        is_it && try_take_byte(&self.turn, TURN).unwrap_or(false)
    }

    /// Makes the node pass its packets to the BPF program `first`. Returns the selection's link and
    /// the engine's objects.
    pub(crate) fn take(self, first: &LoadedProgram) -> Result<(Attached, Behind), LoadError> {
        let entry = ObjectArray::create(NAME, MapKind::ProgArray, 1);
        let behind = Behind {
            entry: entry.map_err(LoadError::Map)?,
            turn: self.turn.into(),
        };
        behind.run(first).map_err(LoadError::Map)?;
        let step = step().map_err(|error| LoadError::Map(io::Error::other(error)))?;
        let step = Loaded::load_with(&step, NAME, &[(NAME, behind.entry.as_fd())])?;
        self.next.put(0, &[step.as_fd()]).map_err(LoadError::Map)?;
        Ok((self.link, behind))
    }
}

impl Behind {
    /// Passes the node's packets to this BPF program from now on. During the change, each packet
    /// goes either to the former BPF program or to this one.
    pub(crate) fn run(&self, program: &LoadedProgram) -> io::Result<()> {
        self.entry.put(0, &[program.as_fd()])
    }
}

/// Returns the BPF program that calls the BPF program in the engine's array. If the array is empty,
/// the host gets the packet.
fn step() -> Result<Object, AssemblerError> {
    let mut asm = Assembler::new();
    asm.call(TAIL_CALL, (R1, map(0), 0));
    asm.exit_with(XDP_PASS);
    let array = MapSpec::given_rows(NAME, MapKind::ProgArray, 4, 1);
    asm.finish(ProgramKind::Xdp, vec![array])
}

/// The name of the map and the BPF program in the kernel.
const NAME: &str = "fanpcap_behind";
