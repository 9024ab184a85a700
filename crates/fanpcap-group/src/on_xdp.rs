//! What the members of a group on the XDP engine share besides its table and locker: the group's
//! BPF program with its maps, and the dock of their device.
//!
//! The locker has all of it. Each member's process has it open too: the kernel empties an array of
//! BPF programs when its last descriptor is closed.

use crate::dock::Dock;
use crate::faults;
use crate::locker::{Deposit, Locker};
use crate::table::{Ledger, Table, at};
use fanpcap_bpf::{MapKind, MapSpec};
use fanpcap_buckets::Slot;
use fanpcap_config::steering::{COUNTERS as STEERING_COUNTERS, Counts};
use fanpcap_linux::bpf::{Loaded, Map};
use fanpcap_linux::wait::clock;
use fanpcap_linux::wait::pipe::Pipe;
use fanpcap_ring::{LinkInfo, Records, Remains};
use fanpcap_steer::ebpf::{COUNTERS_MAP, LATE_MAP, TABLE_MAP};
use fanpcap_xdp::{Device, GroupProgram, MemberRings, PROGRAM_DESCRIPTORS};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The parts of the XDP engine, in one process.
#[derive(Debug)]
pub(crate) struct OnXdp {
    program: Arc<GroupProgram>,
    counts: CountMaps,
    /// Both ends of the dock's locker.
    dock: [OwnedFd; 2],
}

/// The maps with the steering program's counters and its late fragments. A group has them also
/// where its steering program counts nothing, for the one that may replace that.
#[derive(Debug)]
pub(crate) struct CountMaps([Map; 2]);

impl CountMaps {
    /// Those of a new group.
    ///
    /// # Errors
    /// `EPERM` without `CAP_BPF`; `EMFILE` and the like.
    pub(crate) fn new() -> io::Result<Self> {
        let [counters, late] = COUNTS.map(|(name, len)| Map::create(name, &spec(name, len)));
        Ok(Self([counters?, late?]))
    }

    fn of(locker: &Locker) -> io::Result<Self> {
        let found = locker.find(Deposit::Engine(COUNTERS))?.unwrap_or_default();
        let maps = found.iter().zip(COUNTS);
        let maps = maps.map(|(fd, (name, len))| Map::given(fd.as_fd(), &spec(name, len)));
        let maps: Vec<Map> = maps.collect::<io::Result<_>>()?;
        let maps = maps.try_into();
        maps.map(Self)
            .map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// The maps by their names, and the group's table: what the group's BPF program is given.
    pub(crate) fn given<'a>(&'a self, table: BorrowedFd<'a>) -> [(&'a str, BorrowedFd<'a>); 3] {
        let [counters, late] = &self.0;
        [
            (TABLE_MAP, table),
            (COUNTERS_MAP, counters.as_fd()),
            (LATE_MAP, late.as_fd()),
        ]
    }
}

/// Whether a BPF program of a group counts by these maps.
pub(crate) fn counts_by_them(loaded: &Loaded) -> bool {
    COUNTS.iter().any(|(name, _)| loaded.map(name).is_some())
}

/// What was counted for a member: packets for it, dropped ones included, and dropped ones.
pub(crate) type Counted = [u64; 2];

impl OnXdp {
    /// The parts of a new group, which gets no packets yet. The caller has the dock's turn.
    ///
    /// # Errors
    /// As [`Locker::put`].
    pub(crate) fn new(
        program: GroupProgram,
        counts: CountMaps,
        dock: &Dock<Device>,
        locker: &Locker,
    ) -> io::Result<Self> {
        locker.put(Deposit::Engine(PROGRAM), &program.descriptors())?;
        let maps = counts.0.each_ref().map(AsFd::as_fd);
        locker.put(Deposit::Engine(COUNTERS), &maps)?;
        let [into, out_of] = dock.ends().map(|end| end.try_clone_to_owned());
        Ok(Self {
            program: Arc::new(program),
            counts,
            dock: [into?, out_of?],
        })
    }

    /// The parts of a group, by its locker and by the ends of the dock's, which another member has
    /// handed over.
    ///
    /// # Errors
    /// When the locker has no such parts.
    pub(crate) fn of(locker: &Locker, dock: [OwnedFd; 2]) -> io::Result<Self> {
        let parts = locker.find(Deposit::Engine(PROGRAM))?;
        let parts = parts.and_then(|parts| <[OwnedFd; PROGRAM_DESCRIPTORS]>::try_from(parts).ok());
        let parts = parts.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self {
            program: Arc::new(GroupProgram::open(parts)?),
            counts: CountMaps::of(locker)?,
            dock,
        })
    }

    /// The maps with what the steering program counts.
    pub(crate) fn count_maps(&self) -> &CountMaps {
        &self.counts
    }

    /// The group's part of the engine.
    pub(crate) fn program(&self) -> &Arc<GroupProgram> {
        &self.program
    }

    /// The engine's deposits in the group's locker.
    #[cfg(feature = "faults")]
    pub(crate) const DEPOSITS: [Deposit; 3] = [
        Deposit::Engine(PROGRAM),
        Deposit::Engine(COUNTERS),
        Deposit::Berth,
    ];

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

    /// Gives the device's packets to the group from now on, until its last member is gone. False
    /// when the device has as many groups as it may. The caller has the dock's turn.
    ///
    /// # Errors
    /// As [`Dock::moor`].
    pub(crate) fn moor(
        &self,
        dock: &Dock<Device>,
        locker: &Locker,
        table: Table<'_>,
    ) -> io::Result<bool> {
        let program = locker.find(Deposit::Program)?;
        let program = program.and_then(|parts| parts.into_iter().next());
        let program = program.ok_or(io::ErrorKind::InvalidData)?;
        let lifeline = Pipe::new()?;
        faults::step();
        locker.put(Deposit::Berth, &[lifeline.write.as_fd()])?;
        let berth = dock.moor(program.as_fd(), lifeline.read.as_fd())?;
        if let Some(number) = berth {
            table.set(at::BERTH, number.into());
        }
        Ok(berth.is_some())
    }

    /// Directs a slot's packets into these rings, but not what its member sends by `socket`.
    ///
    /// # Errors
    /// As [`GroupProgram::put`].
    pub(crate) fn put(
        &self,
        table: Table<'_>,
        slot: Slot,
        rings: &MemberRings,
        snaplen: u32,
        socket: u64,
    ) -> io::Result<()> {
        let before = self.counted_in(slot);
        for (at, count) in (before_at(slot)..).zip(before) {
            table.set(at, count);
        }
        self.program.put(slot.0, rings, snaplen, socket)
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

    /// The steering program's counters, and the late fragments.
    ///
    /// # Errors
    /// As [`Map::read_numbers`].
    pub(crate) fn counts(&self) -> io::Result<(Counts, u64)> {
        let (mut counts, mut late) = ([0; STEERING_COUNTERS], [0]);
        self.counts.0[0].read_numbers(&mut counts)?;
        self.counts.0[1].read_numbers(&mut late)?;
        Ok((counts, late[0]))
    }

    /// What has become of the packets that came to the group, up to now.
    pub(crate) fn ledger(&self) -> Ledger {
        let mut ledger = Ledger {
            at_ns: clock::monotonic_ns(),
            ..Ledger::default()
        };
        for slot in 0..=u8::MAX {
            let counts = self.program.slot_counts(slot);
            ledger.produced = ledger.produced.wrapping_add(counts.produced);
            ledger.dropped = ledger.dropped.wrapping_add(counts.dropped);
            ledger.unwanted = ledger.unwanted.wrapping_add(counts.unwanted);
        }
        let counts = self.program.group_counts();
        ledger.offered = counts.offered;
        ledger.nowhere = counts.nowhere;
        ledger.no_member = counts.no_member;
        ledger
    }

    /// What a member has left unread in its rings, of which it had `taken` so many packets. The
    /// engine puts nothing into them any more.
    ///
    /// # Errors
    /// When these are not rings of the group, or can't be mapped.
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

/// Which deposit of the engine is which.
const PROGRAM: u64 = 0;
const COUNTERS: u64 = 1;
/// What the exchange of the group's BPF program that is under way needs.
pub(crate) const NEXT: u64 = 2;

/// The maps of [`CountMaps`]: their names, and the numbers in each.
const COUNTS: [(&str, usize); 2] = [(COUNTERS_MAP, STEERING_COUNTERS), (LATE_MAP, 1)];

fn spec(name: &'static str, len: usize) -> MapSpec {
    let bytes = u32::try_from(8 * len).unwrap_or(u32::MAX);
    MapSpec::new(name, MapKind::Array, 4, bytes, 1)
}

/// Where the table has what was counted for a slot before its member came.
pub(crate) fn before_at(slot: Slot) -> usize {
    at::COUNTED_BEFORE + 2 * usize::from(slot.0)
}

/// linux/if_arp.h, `ARPHRD_ETHER`.
const ETHERNET: u16 = 1;
