//! BPF ring buffers: records that a BPF program writes, one for each packet.
//!
//! A member has one or more ring buffers, its lanes: one for each receive queue. The reader takes a
//! snapshot of every lane's producer position. It reads the records up to these positions, the
//! oldest first. Then it takes the next snapshot. If the BPF program has reserved a record but not
//! committed it yet, the lane's part of the snapshot ends before this record.

mod lane;

use crate::frame::{Corrupt, Frame, LINK_LEN, LinkInfo, OUTGOING, Stamp};
use crate::wall::{OffsetClock, Wall};
use fanpcap_linux::bpf::RingMapping;
use lane::{Lane, NONE, Next, Record};
use std::mem;
use std::ptr::NonNull;

/// The most bytes of a packet in a record: libpcap's largest snaplen.
pub const LONGEST: u32 = 1 << 18;

const PACKET_HOST: u8 = 0;
const PACKET_OUTGOING: u8 = 4;

/// The reader releases room to the kernel when it has read this many bytes of a lane. It does so
/// rarely, because after each release the reader and the kernel each fetch a cache line from the
/// other's CPU.
const GIVE: u64 = 1 << 16;

/// The reader's side of the ring buffers of one device.
#[derive(Debug)]
pub struct Records {
    /// The lane of the next record. The reader stays in this lane while the stamp of the lane's
    /// next record is below `until`.
    current: Lane,
    others: Vec<Lane>,
    until: u64,
    state: State,
    wall: Wall,
    /// The `sockaddr_ll` of incoming frames, and that of outgoing frames.
    links: Box<[[u8; LINK_LEN]; 2]>,
    taken: u64,
}

/// How far the reader has come with a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open,
    /// The snapshot has no record left.
    Spent,
}

/// A frame with two fields of the header that the BPF program has written.
#[derive(Debug)]
pub struct Labelled<'ring> {
    /// The frame.
    pub frame: Frame<'ring>,
    /// Bytes 18 and 19 of the header.
    pub flags: u16,
    /// Bytes 20 to 23 of the header.
    pub last: u32,
}

impl Records {
    /// The ring buffers of `device`, from which nothing has been read. The `protocol` and `pkttype`
    /// of `device` are unused. `None` if `rings` is empty.
    pub fn new(rings: Vec<RingMapping>, device: &LinkInfo, clock: OffsetClock) -> Option<Self> {
        let mut lanes = rings.into_iter().map(Lane::new);
        let (current, others) = (lanes.next()?, lanes.collect());
        let links = [PACKET_HOST, PACKET_OUTGOING]
            .map(|pkttype| LinkInfo { pkttype, ..*device }.to_bytes());
        Some(Self {
            until: NONE,
            current,
            others,
            state: State::Closed,
            wall: Wall::new(clock),
            links: Box::new(links),
            taken: 0,
        })
    }

    /// The number of records that this reader has read.
    #[inline]
    pub fn taken(&self) -> u64 {
        self.taken
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

    /// Whether a snapshot is being read, or a lane's next record is committed or discarded.
    pub fn is_ready(&self) -> bool {
        self.state == State::Open || self.lanes().any(Lane::is_ready)
    }

    /// Takes a snapshot, if none is being read. Returns whether there is a snapshot to read from.
    pub fn open(&mut self) -> bool {
        if self.is_open() {
            return true;
        }
        self.lanes_mut().for_each(Lane::look);
        self.begin()
    }

    /// Begins to read the lanes' parts of a snapshot.
    fn begin(&mut self) -> bool {
        if !self.choose(None) {
            // The lanes may have held discarded records, whose room is released here.
            self.give_all();
            return false;
        }
        self.state = State::Open;
        self.wall.renew(self.current.head);
        true
    }

    /// The next record of the snapshot; `None` if the snapshot has no record left. May release the
    /// room of earlier records to the kernel.
    ///
    /// # Errors
    /// A position or length leads out of the ring. The lane's part of the snapshot then counts as
    /// read.
    #[inline(always)]
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Corrupt> {
        let record = self.take()?;
        Ok(record.map(|(record, stamp)| self.frame(&record, stamp)))
    }

    /// Like `next_frame`, but also returns the last two fields of the header that the BPF program
    /// has written. The meaning of these fields depends on the kind of the BPF program, but bit 0
    /// of the flags always marks an outgoing frame.
    ///
    /// # Errors
    /// As [`Records::next_frame`].
    pub fn next_labelled(&mut self) -> Result<Option<Labelled<'_>>, Corrupt> {
        let record = self.take()?;
        Ok(record.map(|(record, stamp)| Labelled {
            frame: self.frame(&record, stamp),
            flags: record.flags,
            last: record.last,
        }))
    }

    #[inline(always)]
    fn take(&mut self) -> Result<Option<(Record, Stamp)>, Corrupt> {
        let next = loop {
            let next = self.current.next();
            match next {
                Some(next) if next.stamp < self.until => break next,
                _ if self.choose(next) => {}
                _ => return Ok(None),
            }
        };
        let lane = &mut self.current;
        if lane.read() >= GIVE {
            lane.give();
        }
        let record = lane.take(next)?;
        self.taken += 1;
        Ok(Some((record, self.wall.time_of(next.stamp))))
    }

    #[inline(always)]
    fn frame(&self, record: &Record, stamp: Stamp) -> Frame<'_> {
        let link = NonNull::from(&self.links[usize::from(record.flags & OUTGOING)]).cast();
        // SAFETY: Lane::take has checked that the record has a header, and `captured` bytes after
        // it. Header and bytes stay valid until their room is released to the kernel. The links
        // live in a box of `self`.
        unsafe { Frame::of_record(record.data, record.captured, record.len, link, stamp) }
    }

    /// Ends the snapshot, if one is being read, and releases the room of its records to the kernel.
    pub fn release(&mut self) {
        if self.is_open() {
            self.state = State::Closed;
            self.lanes_mut().for_each(Lane::leave);
            self.give_all();
        }
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane> {
        std::iter::once(&self.current).chain(&self.others)
    }

    fn lanes_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        std::iter::once(&mut self.current).chain(&mut self.others)
    }

    fn give_all(&mut self) {
        self.lanes_mut().for_each(Lane::give);
    }

    /// Chooses the lane with the oldest record. `next` is the current lane's next record, if the
    /// caller has found it. Returns false if the snapshot has no record left.
    #[inline(never)]
    fn choose(&mut self, next: Option<Next>) -> bool {
        let current = &mut self.current;
        current.head = next.map_or_else(|| current.find(), |next| next.stamp);
        let (mut first, mut second, mut oldest) = (current.head, NONE, None);
        for (index, lane) in self.others.iter().enumerate() {
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
        // At equal stamps the reader stays in the current lane.
        self.until = second.saturating_add(1);
        if first == NONE && self.is_open() {
            self.state = State::Spent;
        }
        first != NONE
    }
}
