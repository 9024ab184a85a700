//! A group's rows and counters, which BPF programs and processes share. Processes access them by
//! this module.

use crate::layout::{LEDGER_MAP, PoolShape, ROW_LEN, ROWS_MAP, SENT_LONGEST, SLOTS, ledger, row};
use fanpcap_linux::bpf::Table;
use fanpcap_ring::pool;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
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

/// The BPF program's counts for the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Packets that came to the group.
    pub offered: u64,
    /// Packets that the steering program dropped.
    pub nowhere: u64,
    /// Packets for which the group had no member, or whose slot had no pool.
    pub no_member: u64,
}

/// The rows of all slots.
#[derive(Debug)]
pub(crate) struct Rows {
    table: Table,
    lanes: u32,
}

impl Rows {
    pub(crate) fn create(shape: PoolShape) -> io::Result<Self> {
        let table = Table::create_rows(ROWS_MAP, ROW_LEN, shape.entries())?;
        let lanes = shape.lanes();
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

    pub(crate) fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Returns the rows of a slot, one for each lane.
    pub(crate) fn of(&self, slot: u8) -> impl Iterator<Item = Row<'_>> {
        let first = u32::from(slot) * self.lanes;
        (first..first + self.lanes).map(|index| Row {
            table: &self.table,
            at: (index * ROW_LEN) as usize,
        })
    }

    pub(crate) fn counts(&self, slot: u8) -> SlotCounts {
        let mut sum = SlotCounts::default();
        for row in self.of(slot) {
            let SlotCounts {
                produced,
                dropped,
                unwanted,
            } = row.counts();
            sum.produced = sum.produced.wrapping_add(produced);
            sum.dropped = sum.dropped.wrapping_add(dropped);
            sum.unwanted = sum.unwanted.wrapping_add(unwanted);
        }
        sum
    }
}

impl SlotCounts {
    /// Returns how many packets were directed to the slot's pools, including dropped packets, and
    /// how many were dropped.
    pub(crate) fn for_slot(&self) -> [u64; 2] {
        [self.produced.wrapping_add(self.dropped), self.dropped]
    }

    /// Returns the number of all deliveries to the slot.
    pub(crate) fn sum(&self) -> u64 {
        let Self {
            produced,
            dropped,
            unwanted,
        } = self;
        produced.wrapping_add(*dropped).wrapping_add(*unwanted)
    }
}

impl AsFd for Rows {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.table.as_fd()
    }
}

const _: () = assert!(SLOTS == 1 << u8::BITS);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    table: &'a Table,
    at: usize,
}

impl<'a> Row<'a> {
    fn word(&self, at: i16) -> Option<&'a AtomicU64> {
        let at = self.at + usize::from(at.unsigned_abs());
        self.table.words(at, 1)?.first()
    }

    fn half(&self, at: i16) -> Option<&'a AtomicU32> {
        let at = self.at + usize::from(at.unsigned_abs());
        self.table.view(at, 1)?.first()
    }

    fn read(&self, at: i16) -> u64 {
        let word = self.word(at);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    pub(crate) fn counts(&self) -> SlotCounts {
        SlotCounts {
            produced: self.read(row::PRODUCED),
            dropped: self.read(row::DROPPED),
            unwanted: self.read(row::UNWANTED),
        }
    }

    pub(crate) fn set_snaplen(&self, snaplen: u32) {
        if let Some(half) = self.half(row::SNAPLEN) {
            half.store(snaplen.min(SENT_LONGEST as u32), Ordering::Release);
        }
    }

    pub(crate) fn set_socket(&self, cookie: u64) {
        if let Some(word) = self.word(row::SOCKET) {
            word.store(cookie, Ordering::Release);
        }
    }

    pub(crate) fn has_socket(&self, cookie: u64) -> bool {
        self.read(row::SOCKET) == cookie
    }

    pub(crate) fn set_sent(&self, wants: bool) {
        if let Some(half) = self.half(row::SENT) {
            half.store(wants.into(), Ordering::Release);
        }
    }

    pub(crate) fn set_filter(&self, filter: u32) {
        if let Some(half) = self.half(row::FILTER) {
            half.store(filter, Ordering::Release);
        }
    }

    /// Makes the lane's next record wake the reader, whatever the lane's position is.
    pub(crate) fn wake_next(&self) {
        if let Some(word) = self.word(row::WAKE_AT) {
            word.store(0, Ordering::SeqCst);
        }
    }

    /// Whether the lane's next record or drop wakes the reader, as [`Row::wake_next`] says.
    pub(crate) fn wakes_next(&self) -> bool {
        self.read(row::WAKE_AT) == 0
    }

    /// Makes only a packet without room wake the reader.
    pub(crate) fn wake_for_drops(&self) {
        // Most rests follow one another: then the CPU's cache line need not change.
        let changes = self.read(row::WAKE_AT) != pool::ONLY_DROPS;
        if let Some(word) = self.word(row::WAKE_AT).filter(|_| changes) {
            word.store(pool::ONLY_DROPS, Ordering::Release);
        }
    }

    /// Makes the record wake the reader with which the lane's position is at least `after` bytes
    /// further. Returns false if the position is that far already: see [`pool::wake_after`].
    pub(crate) fn wake_after(&self, position: impl Fn() -> u64, after: u64) -> bool {
        let word = self.word(row::WAKE_AT);
        word.is_none_or(|word| pool::wake_after(word, position, after))
    }
}

/// A group's own counters.
#[derive(Debug)]
pub(crate) struct Ledger(Table);

impl Ledger {
    pub(crate) fn create(shape: PoolShape) -> io::Result<Self> {
        let ledger = Self(Table::create_rows(LEDGER_MAP, ROW_LEN, shape.lanes())?);
        if let Some(half) = ledger.half(ledger::BLOCK_LEN) {
            half.store(shape.block_len(), Ordering::Release);
        }
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

    fn half(&self, at: i16) -> Option<&AtomicU32> {
        self.0.view(usize::from(at.unsigned_abs()), 1)?.first()
    }

    /// The shape of the pools of the group's members. `None` if a process has stored nonsense.
    pub(crate) fn shape(&self) -> Option<PoolShape> {
        let block_len = self.half(ledger::BLOCK_LEN)?.load(Ordering::Acquire);
        let lanes = self.0.len() / ROW_LEN as usize;
        PoolShape::of_group(lanes * SLOTS as usize, block_len)
    }

    /// Stores that a member wants sent packets.
    pub(crate) fn want_sent(&self) {
        if let Some(half) = self.half(ledger::WANTS_SENT) {
            half.store(1, Ordering::Release);
        }
    }

    /// Returns the counts for the group. `delivered` is the sum of the counts of all slots.
    pub(crate) fn counts(&self, delivered: u64) -> GroupCounts {
        let rows = self.0.len() / ROW_LEN as usize;
        let sum = |counter: i16| {
            let all = (0..rows).filter_map(|index| {
                let at = index * ROW_LEN as usize + usize::from(counter.unsigned_abs());
                self.0.words(at, 1)?.first()
            });
            all.fold(0, |sum: u64, word| {
                sum.wrapping_add(word.load(Ordering::Acquire))
            })
        };
        let (nowhere, no_member) = (sum(ledger::NOWHERE), sum(ledger::NO_MEMBER));
        let ended = delivered.wrapping_add(nowhere).wrapping_add(no_member);
        GroupCounts {
            // Computed, because a separate counter would cost an atomic addition for each packet.
            offered: ended.wrapping_sub(sum(ledger::AGAIN)),
            nowhere,
            no_member,
        }
    }
}

impl AsFd for Ledger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
