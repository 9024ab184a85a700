//! A pool: blocks of records, one record for each packet. BPF programs write them, or a process
//! does ([`LaneWriter`]).
//!
//! Each CPU fills one block at a time, and takes the lowest free block next. So while the reader
//! keeps up, the same few blocks are used again and again, and stay in the CPU's caches. The blocks
//! of one CPU, one after the other, are a *lane*. In a pool that a process writes, each receive
//! queue has a lane.
//!
//! The reader takes a snapshot: it notes the time, then the position of every lane. It reads the
//! records up to these positions, the oldest first. Records that came after the noted time wait for
//! the next snapshot. The lane of one such record may have been looked at after that of an earlier
//! record of the same flow, because a device's interrupts and threads move between CPUs.
//!
//! Processes may write to the records, and any process of the group can map the pool. So nothing in
//! a block is trusted. A record that makes no sense ends its block.

pub mod layout;
pub mod program;
mod words;
mod memory;
mod lane;
mod writer;
#[cfg(test)]
mod model;

use crate::frame::{COPY, Corrupt, Frame, LINK_LEN, LinkInfo, OUTGOING, Stamp};
use crate::layout::Layout;
use crate::wall::{OffsetClock, OffsetReading, Wall};
use lane::{LATEST, Lane, NONE, Next};
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

pub use layout::{POOL_LEN, PoolShape};
pub use memory::{PoolCounts, PoolMemory, PoolWords};
pub use words::{NEVER, ONLY_DROPS, Word, wake_after};
pub use writer::{LaneWriter, NewRecord};

const ARPHRD_ETHER: u16 = 1;
const PACKET_HOST: u8 = 0;
const PACKET_OUTGOING: u8 = 4;

/// The clocks of a pool's reader.
#[derive(Clone, Copy, Debug)]
pub struct PoolClocks {
    /// Returns `CLOCK_MONOTONIC`, in nanoseconds: the clock of the stamps.
    pub now: fn() -> u64,
    /// Returns the difference to the time of day.
    pub offset: OffsetClock,
}

/// The reader's side of a pool.
#[derive(Debug)]
pub struct Pool {
    /// The lane of the next record. The reader stays in this lane while the stamp of the lane's
    /// next record is below `until`.
    current: Lane,
    others: Vec<Lane>,
    /// How many of the other lanes, from the first on, may have records of the snapshot.
    busy: usize,
    until: u64,
    state: State,
    memory: Box<PoolMemory>,
    wall: Wall,
    now: fn() -> u64,
    /// The time at which the snapshot began.
    time: u64,
    /// The `sockaddr_ll` of incoming frames, and that of outgoing frames.
    links: Box<[[u8; LINK_LEN]; 2]>,
    taken: u64,
    /// The value of `taken` when the last snapshot was taken.
    before: u64,
    /// The stamp of the last record.
    last: u64,
    /// Whether blocks that were read go back to the BPF program.
    gives: bool,
}

/// A snapshot that has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// The arrival time of the last record's packet.
    pub last: Stamp,
    /// The number of records.
    pub records: u64,
    /// Bytes that the records take in the pool. The unused ends of blocks count too, unless the
    /// blocks were given back before the snapshot.
    pub bytes: u64,
}

/// How far the reader has come with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open,
    /// The snapshot has no record left.
    Spent,
}

impl Pool {
    /// The pool of a member on the Ethernet device with this index.
    pub fn new(memory: PoolMemory, ifindex: u32, clocks: PoolClocks) -> Self {
        Self::on_device(memory, ifindex, ARPHRD_ETHER, clocks)
    }

    /// The pool of a member on a device with this index and this hardware type (`ARPHRD_*`).
    pub fn on_device(memory: PoolMemory, ifindex: u32, hatype: u16, clocks: PoolClocks) -> Self {
        let mut lanes = (0..memory.words.lanes()).map(|number| Lane::new(number, &memory));
        // A pool's memory has at least one lane.
        let current = lanes.next().unwrap_or_else(|| Lane::new(0, &memory));
        let others = lanes.collect();
        let link = |pkttype| LinkInfo {
            protocol: 0,
            ifindex,
            hatype,
            pkttype,
        };
        let links = [PACKET_HOST, PACKET_OUTGOING].map(|pkttype| link(pkttype).to_bytes());
        Self {
            current,
            others,
            busy: 0,
            until: NONE,
            state: State::Closed,
            memory: Box::new(memory),
            wall: Wall::new(clocks.offset),
            now: clocks.now,
            time: 0,
            links: Box::new(links),
            taken: 0,
            before: 0,
            last: 0,
            gives: true,
        }
    }

    /// Continues with the records that a dead reader of this pool has left unread. The dead reader
    /// had taken `taken` records. The BPF program adds no more records. This reader gives no block
    /// back, so that a later reader can begin where this reader ends.
    pub(crate) fn resume(&mut self, taken: u64) {
        self.taken = taken;
        self.gives = false;
        self.now = || LATEST;
        self.open();
    }

    /// Counts `taken` records as taken, because other members have read them. The next snapshot
    /// begins after these records.
    pub fn skip(&mut self, taken: u64) {
        self.taken = self.taken.max(taken);
    }

    /// Whether a snapshot is being read.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    /// Whether the reader has asked for a record when the snapshot had no record left.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.state == State::Spent
    }

    /// Whether a snapshot is being read, or some lane has an unread record.
    pub fn is_ready(&self) -> bool {
        self.state == State::Open || self.lanes().any(|lane| lane.waiting(&self.memory) != 0)
    }

    /// Whether at least 1/`parts` of the pool is unread.
    pub fn is_filled_to(&self, parts: u64) -> bool {
        self.unread() >= self.bytes() as u64 / parts
    }

    /// Unread bytes of all lanes. The unused end of a block counts too.
    pub fn unread(&self) -> u64 {
        sum(self.lanes().map(|lane| lane.waiting(&self.memory)))
    }

    /// Bytes of the pool's blocks.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Takes a snapshot, if none is being read. Returns whether there is a snapshot to read from.
    pub fn open(&mut self) -> bool {
        if self.is_open() {
            return true;
        }
        // Reads the clock before any lane: see the module's documentation.
        self.time = (self.now)().min(LATEST);
        let (memory, gives) = (&*self.memory, self.gives);
        self.current.look(memory, gives);
        self.busy = 0;
        for index in 0..self.others.len() {
            self.others[index].look(memory, gives);
            if self.others[index].head != NONE {
                self.others.swap(self.busy, index);
                self.busy += 1;
            }
        }
        if !self.choose(None) {
            return false;
        }
        self.state = State::Open;
        self.before = self.taken;
        self.wall.renew(self.current.head);
        true
    }

    /// The oldest record, which is in the current lane afterwards.
    #[inline(always)]
    fn find(&mut self) -> Option<Next> {
        loop {
            let next = self.current.next(&self.memory);
            match next {
                Some(next) if next.stamp < self.until => return Some(next),
                _ if self.choose(next) => {}
                _ => return None,
            }
        }
    }

    /// Like `next_frame`, but compiled only once, for callers that are not time-critical.
    ///
    /// # Errors
    /// As [`Pool::next_frame`].
    #[inline(never)]
    pub fn next_frame_of_many(&mut self) -> Result<Option<Frame<'_>>, Corrupt> {
        self.next_frame()
    }

    /// The arrival time of the next record's packet. `None` if the snapshot has no record left.
    pub fn peek(&mut self) -> Option<Stamp> {
        let next = self.find()?;
        Some(self.wall.time_of(next.stamp))
    }

    /// Like `peek`, but for the next record whose packet no other member gets. Skips the records
    /// before it, which do not count as taken.
    pub(crate) fn peek_single(&mut self) -> Option<Stamp> {
        loop {
            let next = self.find()?;
            if next.header().flags.load(Relaxed) & COPY == 0 {
                return Some(self.wall.time_of(next.stamp));
            }
            // Ignores the error for a corrupt record: `take` has skipped that record.
            let _ = self.current.take(next, &self.memory);
        }
    }

    pub(crate) fn offset(&self) -> OffsetReading {
        self.wall.reading()
    }

    pub(crate) fn adopt_offset(&mut self, reading: OffsetReading) -> bool {
        // A dead member may have left a stamp that is too late for any further reading.
        self.wall.adopt(reading.no_later_than((self.now)()))
    }

    /// Ends the snapshot. Returns `None` if no snapshot is being read.
    pub fn release(&mut self) -> Option<Drained> {
        if !self.is_open() {
            return None;
        }
        self.state = State::Closed;
        self.current.leave();
        self.others.iter_mut().for_each(Lane::leave);
        Some(Drained {
            last: self.wall.time_of(self.last),
            records: self.taken.wrapping_sub(self.before),
            bytes: sum(self.lanes().map(Lane::passed)),
        })
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        std::iter::once(&self.current).chain(&self.others)
    }

    /// Chooses the lane with the oldest record. `next` is the current lane's next record, if the
    /// caller has found it. Returns false if the snapshot has no record left.
    #[inline(never)]
    fn choose(&mut self, next: Option<Next>) -> bool {
        let (current, memory) = (&mut self.current, &*self.memory);
        current.head = next.map_or_else(|| current.find(memory, self.gives), |next| next.stamp);
        current.postpone(self.time);
        let (mut first, mut second, mut oldest) = (current.head, NONE, None);
        for (index, lane) in self.others[..self.busy].iter_mut().enumerate() {
            lane.postpone(self.time);
            if lane.head < first {
                second = mem::replace(&mut first, lane.head);
                oldest = Some(index);
            } else {
                second = second.min(lane.head);
            }
        }
        if let Some(oldest) = oldest {
            mem::swap(current, &mut self.others[oldest]);
        }
        // At equal stamps the reader stays in the current lane. Later records than `time` are left
        // to the next snapshot.
        self.until = second.min(self.time).saturating_add(1);
        if first == NONE && self.is_open() {
            self.state = State::Spent;
        }
        first != NONE
    }
}

impl Layout for Pool {
    /// The number of records that this reader and the readers before it have read.
    #[inline]
    fn taken(&self) -> u64 {
        self.taken
    }

    /// The next record of the snapshot; `None` if the snapshot has no record left. May give back
    /// the blocks of earlier records.
    ///
    /// # Errors
    /// A record's length leads out of its block. The rest of the block counts as read.
    #[inline(always)]
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Corrupt> {
        let Some(next) = self.find() else {
            return Ok(None);
        };
        let captured = self.current.take(next, &self.memory)?;
        // The addition may wrap, because a dead reader may have left any number in `taken`.
        self.taken = self.taken.wrapping_add(1);
        self.last = next.stamp;
        let (data, header) = (next.data(), next.header());
        let (len, flags) = (header.len.load(Relaxed), header.flags.load(Relaxed));
        let link = NonNull::from(&self.links[usize::from(flags & OUTGOING)]).cast();
        let stamp = self.wall.time_of(next.stamp);
        // SAFETY: Lane::take has checked that the record has a header, and `captured` bytes after
        // it. Their memory belongs to the pool, which lives as long as the frame; other processes
        // may write to it at any time. The links live in a box of `self`.
        let frame = unsafe { Frame::of_record(data, captured, len, link, stamp) };
        Ok(Some(frame))
    }
}

/// Adds numbers that may be any, because other processes may have written positions.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}
