//! A group's rows and counters, which BPF programs and processes share. Processes access them by
//! this module.

use crate::layout::{LEDGER_MAP, ROW_LEN, ROWS_MAP, SLOTS, ledger, row};
use fanpcap_engine::WatchedCounters;
use fanpcap_linux::bpf::{ObjectId, Table};
use fanpcap_linux::memory::Atomic;
use fanpcap_linux::process::pidfd::Process;
use fanpcap_linux::wait::clock;
use fanpcap_ring::pool::{self, PoolShape};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The BPF program's counts for a slot since the group began. A new member of the slot stores the
/// counts at its join, and subtracts them from later counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Records written to the slot's pools.
    pub produced: u64,
    /// Packets for which a pool had no room.
    pub dropped: u64,
    /// Packets that the slot's filter rejected, or that the slot's member sent.
    pub unwanted: u64,
}

/// The rows of all slots.
pub(crate) struct Rows {
    table: Table,
    pub(crate) lanes: u32,
}

impl Rows {
    pub(crate) fn create(shape: PoolShape) -> io::Result<Self> {
        let lanes = shape.lanes();
        let table = Table::create_rows(ROWS_MAP, ROW_LEN, SLOTS * lanes)?;
        Ok(Self { table, lanes })
    }

    /// Opens the rows behind `fd`, which comes from another process.
    ///
    /// # Errors
    /// `InvalidData` if `fd` is not a map of rows.
    pub(crate) fn open(fd: OwnedFd) -> io::Result<Self> {
        let table = Table::open_rows(fd, ROW_LEN)?;
        let rows = u32::try_from(table.len()).unwrap_or(0) / ROW_LEN;
        let lanes = Some(rows / SLOTS).filter(|&lanes| lanes > 0 && rows == lanes * SLOTS);
        let lanes = lanes.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { table, lanes })
    }

    /// Returns the rows of a slot, one for each lane.
    pub(crate) fn of(&self, slot: u8) -> impl Iterator<Item = Row<'_>> {
        let first = u32::from(slot) * self.lanes;
        (first..first + self.lanes).map(|index| Row::of(&self.table, index))
    }

    /// Returns the rows of all slots.
    fn all(&self) -> impl Iterator<Item = Row<'_>> {
        (0..SLOTS * self.lanes).map(|index| Row::of(&self.table, index))
    }

    pub(crate) fn counts(&self, slot: u8) -> SlotCounts {
        SlotCounts {
            produced: sum(self.of(slot), row::PRODUCED),
            dropped: sum(self.of(slot), row::DROPPED),
            unwanted: sum(self.of(slot), row::UNWANTED),
        }
    }
}

/// The sum of one counter in several rows.
fn sum<'a>(rows: impl Iterator<Item = Row<'a>>, counter: i16) -> u64 {
    let numbers = rows.map(|row| row.read(counter));
    numbers.fold(0, u64::wrapping_add)
}

impl SlotCounts {
    /// Returns how many packets were directed to the slot's pools, including dropped packets, and
    /// how many were dropped.
    pub(crate) fn for_slot(&self) -> [u64; 2] {
        [self.produced.wrapping_add(self.dropped), self.dropped]
    }
}

impl AsFd for Rows {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

const _: () = assert!(SLOTS == 1 << u8::BITS);

/// A row of a slot and a lane, or of a group's own counters. The offsets in it are those of
/// [`row`], or of [`ledger`].
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    table: &'a Table,
    at: usize,
}

impl<'a> Row<'a> {
    fn of(table: &'a Table, index: u32) -> Self {
        let at = (index * ROW_LEN) as usize;
        Self { table, at }
    }

    fn number<A: Atomic>(&self, at: i16) -> Option<&'a A> {
        let at = self.at + usize::from(at.unsigned_abs());
        self.table.view(at, 1)?.first()
    }

    /// Reads 64 bits.
    pub(crate) fn read(&self, at: i16) -> u64 {
        let word = self.number::<AtomicU64>(at);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Writes 64 bits, as a full barrier.
    pub(crate) fn write(&self, at: i16, number: u64) {
        if let Some(word) = self.number::<AtomicU64>(at) {
            word.store(number, Ordering::SeqCst);
        }
    }

    /// Writes 32 bits.
    pub(crate) fn set(&self, at: i16, number: u32) {
        if let Some(half) = self.number::<AtomicU32>(at) {
            half.store(number, Ordering::Release);
        }
    }

    /// Makes only a packet without room wake the reader.
    pub(crate) fn wake_for_drops(&self) {
        // Most rests follow one another: then the CPU's cache line need not change.
        if self.read(row::WAKE_AT) != pool::ONLY_DROPS {
            self.write(row::WAKE_AT, pool::ONLY_DROPS);
        }
    }

    /// Makes the record wake the reader with which the lane's position is at least `after` bytes
    /// further. Returns false if the position is that far already: see [`pool::wake_after`].
    pub(crate) fn wake_after(&self, position: impl Fn() -> u64, after: u64) -> bool {
        let word = self.number::<AtomicU64>(row::WAKE_AT);
        word.is_none_or(|word| pool::wake_after(word, position, after))
    }
}

/// A group's own counters.
pub(crate) struct Ledger(Table);

impl Ledger {
    pub(crate) fn create(shape: PoolShape) -> io::Result<Self> {
        let ledger = Self(Table::create_rows(LEDGER_MAP, ROW_LEN, shape.lanes())?);
        ledger.first().set(ledger::BLOCK_LEN, shape.block_len());
        Ok(ledger)
    }

    /// Opens the counters behind `fd`, of a group with so many lanes.
    ///
    /// # Errors
    /// `InvalidData` if `fd` is not the map of the counters of such a group.
    pub(crate) fn open(fd: OwnedFd, lanes: u32) -> io::Result<Self> {
        let table = Table::open_rows(fd, ROW_LEN)?;
        if table.len() != (lanes * ROW_LEN) as usize {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self(table))
    }

    fn first(&self) -> Row<'_> {
        Row::of(&self.0, 0)
    }

    /// The shape of the pools of the group's members. `None` if a process has stored nonsense.
    pub(crate) fn shape(&self) -> Option<PoolShape> {
        let block_len = self.first().number::<AtomicU32>(ledger::BLOCK_LEN)?;
        let lanes = u32::try_from(self.0.len()).ok()? / ROW_LEN;
        PoolShape::new(lanes, block_len.load(Ordering::Acquire))
    }

    /// Stores that a member wants sent packets.
    pub(crate) fn want_sent(&self) {
        self.first().set(ledger::WANTS_SENT, 1);
    }

    /// Returns the counts for the group whose slots have these rows.
    pub(crate) fn counts(&self, slots: &Rows) -> fanpcap_engine::Ledger {
        let at_ns = clock::monotonic_ns();
        let lanes = || (0..slots.lanes).map(|lane| Row::of(&self.0, lane));
        let own = |counter| sum(lanes(), counter);
        let (nowhere, no_member) = (own(ledger::NOWHERE), own(ledger::NO_MEMBER));
        let [produced, dropped, unwanted] =
            [row::PRODUCED, row::DROPPED, row::UNWANTED].map(|counter| sum(slots.all(), counter));
        let ended = [nowhere, no_member, produced, dropped, unwanted];
        let ended = ended.into_iter().fold(0, u64::wrapping_add);
        fanpcap_engine::Ledger {
            at_ns,
            // Computed, because a separate counter would cost an atomic addition for each packet.
            offered: ended.wrapping_sub(own(ledger::AGAIN)),
            nowhere,
            no_member,
            produced,
            dropped,
            unwanted,
            ..fanpcap_engine::Ledger::default()
        }
    }
}

impl AsFd for Ledger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The maps with a group's counters, held by a process that is not a member. The counters stay
/// readable after the group's last member and its BPF programs have ended.
pub(crate) struct HeldCounters {
    rows: Rows,
    ledger: Ledger,
}

impl HeldCounters {
    /// Opens the counters of the group in which the member with this socket (`SO_COOKIE`) has this
    /// slot. `process` is the member's process, and `pid` is its process id.
    ///
    /// # Errors
    /// `NotFound` if the process does not have such maps, or does not have them yet. `EPERM` if the
    /// caller may not trace the process.
    pub(crate) fn of_member(
        process: &Process,
        pid: u32,
        slot: u8,
        socket: u64,
    ) -> io::Result<Self> {
        let maps: Vec<RawFd> = ObjectId::maps_of(pid, ROW_LEN).into_values().collect();
        let open = |fd: &RawFd| process.duplicate(*fd);
        let mut fds = maps.iter();
        let rows = loop {
            let fd = open(fds.next().ok_or(io::ErrorKind::NotFound)?)?;
            let rows = Rows::open(fd).ok();
            if let Some(rows) = rows.filter(|rows| is_of(rows, slot, socket)) {
                break rows;
            }
        };
        // A group's first member creates the ledger right after the rows. So in the order of map
        // ids, the ledger follows the rows among the maps with values of this size.
        for fd in fds {
            let fd: OwnedFd = open(fd)?;
            if let Ok(ledger) = Ledger::open(fd, rows.lanes) {
                return Ok(Self { rows, ledger });
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }
}

impl WatchedCounters for HeldCounters {
    fn counted(&self, slot: u8, socket: u64) -> Option<[u64; 2]> {
        let counts = self.rows.counts(slot);
        is_of(&self.rows, slot, socket).then(|| counts.for_slot())
    }

    fn stop(&self, slot: u8, socket: u64) {
        if is_of(&self.rows, slot, socket) {
            self.rows.of(slot).for_each(|row| row.set(row::SNAPLEN, 0));
        }
    }

    fn ledger(&self) -> fanpcap_engine::Ledger {
        self.ledger.counts(&self.rows)
    }
}

/// Whether the member with this socket has the slot, or was the last member in the slot.
fn is_of(rows: &Rows, slot: u8, socket: u64) -> bool {
    let mut rows = rows.of(slot);
    rows.any(|row| row.read(row::SOCKET) == socket)
}
