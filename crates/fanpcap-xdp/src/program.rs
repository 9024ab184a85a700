//! A group's BPF program on a device, and the maps by which its members come and go.

use crate::capture::{Capture, Variant};
use crate::layout::{self, FILTERS_MAP, LEDGER_MAP, Lanes, RINGS_MAP, ROWS_MAP, SLOTS};
use crate::layout::{SETTINGS_MAP, STAMP_MAP};
use crate::rings::MemberRings;
use crate::rows::{GroupCounts, Ledger, Rows, SlotCounts};
use fanpcap_bpf::{MapKind, Object, ProgramKind};
use fanpcap_linux::bpf::{Attached, Hook, LoadError, Loaded, LoadedProgram, ObjectArray};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A group's BPF program on one device.
///
/// Loading it takes `CAP_BPF` and `CAP_NET_ADMIN`. Nothing else takes a capability since Linux
/// 5.19. Before, changes of maps take `CAP_BPF` where kernel.unprivileged_bpf_disabled is set.
#[derive(Debug)]
pub struct GroupProgram {
    program: LoadedProgram,
    rings: ObjectArray,
    rows: Rows,
    ledger: Ledger,
    filters: ObjectArray,
    /// The BPF program for packets that the host sends, if the kernel has a place for it.
    sent: Option<Attached>,
}

/// How many descriptors a group's BPF program has.
pub const PROGRAM_DESCRIPTORS: usize = 6;

/// The dock's part in a group's BPF program: descriptors of the maps that all groups on the device
/// share.
#[derive(Clone, Copy, Debug)]
pub struct DockMaps<'a> {
    /// The device's index; 0: it is gone.
    pub ifindex: u32,
    /// The dock's settings.
    pub settings: BorrowedFd<'a>,
    /// The root's stamp.
    pub stamp: BorrowedFd<'a>,
}

impl GroupProgram {
    /// Loads the BPF program of a group without members, for a device with these lanes and this
    /// dock. `compile` compiles the group's steering program with a capture; `given` are the other
    /// maps that it is given. The [`Loaded`] has the steering program's own maps.
    ///
    /// # Errors
    /// [`ProgramError`].
    pub fn load<E>(
        lanes: Lanes,
        dock: DockMaps<'_>,
        given: &[(&str, BorrowedFd<'_>)],
        compile: &dyn Fn(&Capture) -> Result<Object, E>,
    ) -> Result<(Self, Loaded), ProgramError<E>> {
        let maps = Maps::create(lanes).map_err(|error| LoadError::of_map(KIND, error))?;
        let mut all = vec![
            (RINGS_MAP, maps.rings.as_fd()),
            (ROWS_MAP, maps.rows.as_fd()),
            (LEDGER_MAP, maps.ledger.as_fd()),
            (FILTERS_MAP, maps.filters.as_fd()),
            (SETTINGS_MAP, dock.settings),
            (STAMP_MAP, dock.stamp),
        ];
        all.extend(given);
        let load = |variant| -> Result<Loaded, ProgramError<E>> {
            let object = compile(&Capture::new(lanes, variant)).map_err(ProgramError::Compile)?;
            Ok(Loaded::load_with(&object, NAME, &all)?)
        };
        let load_sent = |beside: &Loaded| -> Option<Attached> {
            let object = compile(&Capture::sent(lanes)).ok()?;
            let sent = Loaded::load_sharing(&object, NAME_OF_SENT, &all, beside).ok()?;
            sent.into_program().attach(dock.ifindex, Hook::Egress).ok()
        };
        let mut loaded = load(Variant::Full);
        for variant in [Variant::Copied, Variant::Plain] {
            if matches!(loaded, Err(ProgramError::Load(LoadError::Refused(_)))) {
                loaded = load(variant);
            }
        }
        let loaded = loaded?;
        let program = loaded.as_fd().try_clone_to_owned();
        let program = program.and_then(|fd| LoadedProgram::open(fd, KIND));
        let program = program.map_err(LoadError::Map)?;
        // Before Linux 6.6 there is no such hook.
        let sent = load_sent(&loaded);
        Ok((maps.with(program, sent), loaded))
    }

    /// The BPF program behind [`GroupProgram::descriptors`] of another process. It takes no
    /// capability.
    ///
    /// # Errors
    /// `InvalidData` when they are not those of a group's BPF program.
    pub fn open(descriptors: [OwnedFd; PROGRAM_DESCRIPTORS]) -> io::Result<Self> {
        let [program, rings, rows, ledger, filters, sent] = descriptors;
        let rows = Rows::open(rows)?;
        let lanes = rows.lanes();
        Ok(Self {
            program: LoadedProgram::open(program, KIND)?,
            rings: ObjectArray::open(rings, MapKind::RingArray, lanes.entries())?,
            ledger: Ledger::open(ledger, lanes)?,
            filters: ObjectArray::open(filters, MapKind::ProgArray, SLOTS)?,
            sent: Attached::open(sent, Hook::Egress).ok(),
            rows,
        })
    }

    /// All descriptors, for [`GroupProgram::open`] in another process. The kernel forgets the
    /// members' filters when no process has them open any more, and detaches the BPF program for
    /// sent packets.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; PROGRAM_DESCRIPTORS] {
        [
            self.program.as_fd(),
            self.rings.as_fd(),
            self.rows.as_fd(),
            self.ledger.as_fd(),
            self.filters.as_fd(),
            // Without a BPF program for sent packets, something that is none.
            self.sent.as_ref().map_or(self.program.as_fd(), AsFd::as_fd),
        ]
    }

    /// Whether the group's members can get packets that the host sends.
    pub fn sees_sent(&self) -> bool {
        self.sent.is_some()
    }

    /// The BPF program itself.
    pub fn program(&self) -> &LoadedProgram {
        &self.program
    }

    /// The lanes of the device when the group began.
    pub fn lanes(&self) -> Lanes {
        self.rows.lanes()
    }

    /// Directs the slot's packets into `rings` from now on, up to `snaplen` bytes of each,
    /// unfiltered. The first packet wakes the reader. When this returns, nothing comes into the
    /// rings that the slot had before. What the host sends by the member's own `socket`
    /// (`SO_COOKIE`) is not the slot's, as with packet sockets.
    ///
    /// # Errors
    /// Those of bpf(2). The slot may then take nothing.
    pub fn put(&self, slot: u8, rings: &MemberRings, snaplen: u32, socket: u64) -> io::Result<()> {
        self.rows.of(slot).for_each(|row| {
            row.set_snaplen(0);
            row.set_filter(0);
            row.set_socket(socket);
        });
        let fds = rings.for_lanes(self.lanes());
        self.rings.put(self.first(slot), &fds)?;
        if !rings.has_sent() {
            let received = self.lanes().received();
            self.rings.remove(self.first(slot) + received, 1)?;
        }
        rings.note_before(self.slot_counts(slot));
        self.wake_after(slot, 1);
        self.set_snaplen(slot, snaplen);
        if rings.has_sent() {
            self.ledger.want_sent(self.lanes().received());
        }
        Ok(())
    }

    /// Sets how many bytes of each packet the slot takes. With 0 it takes no packet; packets that
    /// are under way may still come.
    pub fn set_snaplen(&self, slot: u8, snaplen: u32) {
        self.rows.of(slot).for_each(|row| row.set_snaplen(snaplen));
    }

    /// Takes the slot's rings and its filter away. When this returns, nothing comes into the rings
    /// any more.
    ///
    /// # Errors
    /// Those of bpf(2).
    pub fn take_away(&self, slot: u8) -> io::Result<()> {
        self.set_snaplen(slot, 0);
        self.set_filter(slot, None)?;
        let used = self.lanes().received() + 1;
        self.rings.remove(self.first(slot), used)
    }

    /// Sets the filter that the kernel runs for the slot, or none. The filter is a BPF program at
    /// XDP that returns how many bytes to keep. Records that passed it have its generation, which
    /// is not 0; each filter of a slot must have another one. Records that are written during the
    /// change may have the former generation, or 0.
    ///
    /// # Errors
    /// Those of bpf(2); then no filter runs.
    pub fn set_filter(&self, slot: u8, filter: Option<(&LoadedProgram, u32)>) -> io::Result<()> {
        // A record must not claim a filter that has not run. So the generation goes first and comes
        // last.
        let set = |generation| {
            self.rows
                .of(slot)
                .for_each(|row| row.set_filter(generation))
        };
        match filter {
            Some((program, generation)) => {
                let put = self.filters.put(slot.into(), &[program.as_fd()]);
                set(if put.is_ok() { generation } else { 0 });
                put
            }
            None => {
                set(0);
                self.filters.remove(slot.into(), 1)
            }
        }
    }

    /// What was counted for the slot.
    pub fn slot_counts(&self, slot: u8) -> SlotCounts {
        self.rows.counts(slot)
    }

    /// What was counted for the group.
    pub fn group_counts(&self) -> GroupCounts {
        let slots = (0..=u8::MAX).map(|slot| self.slot_counts(slot).sum());
        self.ledger.counts(slots.fold(0, u64::wrapping_add))
    }

    /// Makes the `after`th packet from now on, in any lane, wake the reader of the slot's rings.
    /// False if that packet has come meanwhile: then maybe nothing wakes the reader.
    pub fn wake_after(&self, slot: u8, after: u64) -> bool {
        let mut rows = self.rows.of(slot);
        rows.all(|row| row.wake_after(after))
    }

    /// The rows, mapped once more.
    pub(crate) fn rows_again(&self) -> io::Result<Rows> {
        Rows::open(self.rows.as_fd().try_clone_to_owned()?)
    }

    fn first(&self, slot: u8) -> u32 {
        u32::from(slot) * self.lanes().stride()
    }
}

/// A group's maps, before the BPF program that uses them.
struct Maps {
    rings: ObjectArray,
    rows: Rows,
    ledger: Ledger,
    filters: ObjectArray,
}

impl Maps {
    fn create(lanes: Lanes) -> io::Result<Self> {
        let array = |spec: fanpcap_bpf::MapSpec| {
            ObjectArray::create("fanpcap_xdp", spec.kind, spec.entries)
        };
        Ok(Self {
            rings: array(layout::rings(lanes))?,
            rows: Rows::create(lanes)?,
            ledger: Ledger::create(lanes)?,
            filters: array(layout::filters())?,
        })
    }

    fn with(self, program: LoadedProgram, sent: Option<Attached>) -> GroupProgram {
        let Self {
            rings,
            rows,
            ledger,
            filters,
        } = self;
        GroupProgram {
            program,
            rings,
            rows,
            ledger,
            filters,
            sent,
        }
    }
}

/// Why a group's BPF program can't be loaded.
#[derive(Debug)]
pub enum ProgramError<E> {
    /// The steering program can't be compiled.
    Compile(E),
    /// The kernel does not load the BPF program.
    Load(LoadError),
}

impl<E> From<LoadError> for ProgramError<E> {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}

const KIND: ProgramKind = ProgramKind::Xdp;
/// The name in the kernel.
pub(crate) const NAME: &str = "fanpcap_xdp";
const NAME_OF_SENT: &str = "fanpcap_sent";

#[cfg(test)]
mod tests;
