//! The engine behind the selection of a cluster's node. The node's BPF program is attached to the
//! device. It passes the packets that it selects to the BPF program in an array.
//!
//! The array is pinned, so it keeps its entry when the engine's last member dies. The entry is
//! therefore [`step`], a BPF program that calls the BPF program in the engine's own array. When the
//! last descriptor of the engine's array is closed, the kernel empties that array, and the host
//! gets the packets.

use fanpcap_bpf::{Instruction, MapKind, ProgramKind};
use fanpcap_linux::bpf::{Attached, LoadError, LoadedProgram, ObjectArray};
use fanpcap_linux::file::lock;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The objects that a node provides for the engine.
#[derive(Debug)]
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
#[derive(Debug)]
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
        is_it && lock::try_take_byte(&self.turn, TURN).unwrap_or(false)
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
        let step = step(behind.entry.as_fd().as_raw_fd());
        let step = LoadedProgram::load(ProgramKind::Xdp, NAME, &step);
        let step = step.map_err(LoadError::Refused)?;
        let put = self.next.put(0, &[step.as_fd()]);
        put.map_err(LoadError::Map)?;
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

/// Returns the code that calls the BPF program in the engine's array `entry`. If the array is
/// empty, the host gets the packet.
fn step(entry: i32) -> [Instruction; 6] {
    let [map, second] = Instruction::map(2, entry);
    [
        map,
        second,
        Instruction::set(3, 0),
        Instruction::new(CALL, 0, 0, 0, TAIL_CALL),
        Instruction::set(0, XDP_PASS),
        Instruction::exit(),
    ]
}

/// The name of the map and the BPF program in the kernel.
const NAME: &str = "fanpcap_behind";

// linux/bpf.h: BPF_JMP | BPF_CALL, enum xdp_action and enum bpf_func_id.
const CALL: u8 = 0x85;
const XDP_PASS: i32 = 2;
const TAIL_CALL: i32 = 12;
