//! What the members of a group on the engine on XDP share besides its table and locker: the group's
//! BPF program with its maps, and the dock of their device.
//!
//! The locker has all of it. Each member's process has it open too, since the kernel forgets what
//! an array of BPF programs has with its last descriptor.

use crate::dock::Dock;
use crate::locker::{Deposit, Locker};
use crate::table::{Table, at};
use fanpcap_buckets::Slot;
use fanpcap_linux::wait::clock;
use fanpcap_linux::wait::pipe::Pipe;
use fanpcap_ring::{LinkInfo, Records, Remains};
use fanpcap_xdp::{Device, GroupProgram, MemberRings, PROGRAM_DESCRIPTORS};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The parts of the engine on XDP, in one process.
#[derive(Debug)]
pub(crate) struct OnXdp {
    program: Arc<GroupProgram>,
    /// Both ends of the dock's locker.
    dock: [OwnedFd; 2],
}

/// What was counted for a member: packets for it, dropped ones included, and dropped ones.
pub(crate) type Counted = [u64; 2];

impl OnXdp {
    /// That of a new group, which gets no packets yet. The caller has the dock's turn.
    ///
    /// # Errors
    /// As [`Locker::put`].
    pub(crate) fn new(
        program: GroupProgram,
        dock: &Dock<Device>,
        locker: &Locker,
    ) -> io::Result<Self> {
        locker.put(Deposit::Engine(0), &program.descriptors())?;
        let [into, out_of] = dock.ends().map(|end| end.try_clone_to_owned());
        Ok(Self {
            program: Arc::new(program),
            dock: [into?, out_of?],
        })
    }

    /// That of a group whose locker another member has handed over, and the ends of the dock's.
    ///
    /// # Errors
    /// When the locker has no such parts.
    pub(crate) fn of(locker: &Locker, dock: [OwnedFd; 2]) -> io::Result<Self> {
        let parts = locker.find(Deposit::Engine(0))?;
        let parts = parts.and_then(|parts| <[OwnedFd; PROGRAM_DESCRIPTORS]>::try_from(parts).ok());
        let parts = parts.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        let program = Arc::new(GroupProgram::open(parts)?);
        Ok(Self { program, dock })
    }

    /// The group's BPF program.
    pub(crate) fn program(&self) -> &Arc<GroupProgram> {
        &self.program
    }

    /// Both ends of the dock's locker.
    pub(crate) fn dock_ends(&self) -> [BorrowedFd<'_>; 2] {
        self.dock.each_ref().map(AsFd::as_fd)
    }

    /// The dock. The caller has its turn.
    ///
    /// # Errors
    /// As [`Dock::of`].
    pub(crate) fn dock(&self, ifindex: u32) -> io::Result<Dock<Device>> {
        let [into, out_of] = self.dock.each_ref().map(OwnedFd::try_clone);
        Dock::of([into?, out_of?], ifindex)
    }

    /// Has the device's packets come to the group from now on, until its last member is gone. False
    /// when the device has as many groups as it may. The caller has the dock's turn.
    ///
    /// # Errors
    /// As [`Dock::moor`].
    pub(crate) fn moor(&self, dock: &Dock<Device>, locker: &Locker) -> io::Result<bool> {
        let lifeline = Pipe::new()?;
        locker.put(Deposit::Berth, &[lifeline.write.as_fd()])?;
        let program = self.program.program().as_fd();
        let berth = dock.moor(program, lifeline.read.as_fd())?;
        Ok(berth.is_some())
    }

    /// Has what comes to a slot go into these rings.
    ///
    /// # Errors
    /// As [`GroupProgram::put`].
    pub(crate) fn put(
        &self,
        table: Table<'_>,
        slot: Slot,
        rings: &MemberRings,
        snaplen: u32,
    ) -> io::Result<()> {
        let before = self.counted_in(slot);
        for (at, count) in (before_at(slot)..).zip(before) {
            table.set(at, count);
        }
        self.program.put(slot.0, rings, snaplen)
    }

    /// What was counted for the member in a slot since it came.
    pub(crate) fn counted(&self, table: Table<'_>, slot: Slot) -> Counted {
        let now = self.counted_in(slot);
        let before = before_at(slot);
        std::array::from_fn(|which| now[which].wrapping_sub(table.get(before + which)))
    }

    fn counted_in(&self, slot: Slot) -> Counted {
        let counts = self.program.slot_counts(slot.0);
        [counts.produced.wrapping_add(counts.dropped), counts.dropped]
    }

    /// What a member has left unread in its rings, of which it had `taken` so many packets. The
    /// engine puts nothing into them any more.
    ///
    /// # Errors
    /// When they are no rings of the group's, or can't be mapped.
    pub(crate) fn remains(
        &self,
        rings: Vec<OwnedFd>,
        ifindex: u32,
        taken: u64,
    ) -> io::Result<Remains> {
        let rings = MemberRings::open(rings, self.program.lanes())?;
        let link = LinkInfo {
            protocol: 0,
            ifindex,
            hatype: ETHERNET,
            pkttype: 0,
        };
        let records = Records::new(rings.map()?, &link, clock::realtime_offset_ns);
        let records = records.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Remains::of_records(records, taken))
    }
}

/// Where the table has what was counted for a slot before its member came.
fn before_at(slot: Slot) -> usize {
    at::COUNTED_BEFORE + 2 * usize::from(slot.0)
}

/// linux/if_arp.h, `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;
