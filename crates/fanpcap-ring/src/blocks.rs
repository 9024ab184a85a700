//! TPACKET_V3: blocks of packets of any length. The kernel hands over whole blocks to the reader,
//! and the reader releases whole blocks to the kernel.

use crate::frame::{Corrupt, Frame, FrameHeader, LINK_LEN, LentFrame, Stamp, corrupt};
use crate::layout::Layout;
use crate::position::{Mark, Position};
use crate::prefetch::prefetch_ahead;
use fanpcap_linux::packet::ring::Mapping;
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// `struct tpacket3_hdr`, with the variant `hv1` of its union.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    next_offset: u32,
    stamp: Stamp,
    captured: u32,
    len: u32,
    status: u32,
    mac: u16,
    net: u16,
    rxhash: u32,
    tci: u32,
    tpid: u16,
    padding: u16,
    more: [u8; 8],
}

/// `struct tpacket_block_desc`, up to where the packets' headers may begin.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor {
    version: u32,
    offset_to_priv: u32,
    status: u32,
    packets: u32,
    first: u32,
    len: u32,
    sequence: u64,
    first_stamp: Stamp,
    last_stamp: Stamp,
}

/// A frame's header and its `sockaddr_ll` (`TPACKET3_HDRLEN`).
const HEAD: usize = size_of::<Header>() + LINK_LEN;
const DESCRIPTOR: usize = size_of::<Descriptor>();
const STATUS: usize = 8;
const SEQUENCE: usize = 24;

const TP_STATUS_KERNEL: u32 = 0;
const TP_STATUS_BLK_TMO: u32 = 1 << 5;

/// The reader's side of a TPACKET_V3 ring.
#[derive(Debug)]
pub struct Blocks {
    mapping: Mapping,
    block_size: usize,
    count: usize,
    current: usize,
    open: Option<Open>,
    /// The number of packets in all blocks that the reader has begun.
    begun: u64,
    mark: Mark,
    /// What was read of the current block before the kernel handed it over.
    early: Early,
}

/// The part of the current block that [`Blocks::open_last`] has begun.
#[derive(Clone, Copy, Debug, Default)]
struct Early {
    packets: u32,
    /// Offset of the next packet's header from the start of the block; 0 for the first packet.
    next: usize,
    /// Whether the open part of the block still belongs to the kernel.
    is_open: bool,
}

/// The current block, once the reader has begun it.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Offset of the next packet's header from the start of the block.
    next: usize,
    left: u32,
}

/// A block that was released to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The time at which the kernel began to fill the block.
    pub first: Stamp,
    /// The time at which the kernel closed the block.
    pub last: Stamp,
    /// True if the kernel closed the block because the block was full, false if the kernel closed
    /// it because the block's time was over.
    pub full: bool,
}

impl Blocks {
    /// A ring of `count` unread blocks of `block_size` bytes. Returns `None` if `mapping` does not
    /// have the length of all blocks, or if a block has no room for a packet.
    pub fn new(mapping: Mapping, block_size: usize, count: usize) -> Option<Self> {
        let fits = block_size.checked_mul(count)? == mapping.len();
        let usable = block_size >= DESCRIPTOR + HEAD && block_size % 8 == 0;
        (fits && usable).then_some(Self {
            mapping,
            block_size,
            count,
            current: 0,
            open: None,
            begun: 0,
            mark: Mark::FIRST,
            early: Early::default(),
        })
    }

    /// Begins the current block, if the kernel has handed it over and the reader has not begun it.
    /// Returns whether there is a block to read from.
    #[inline]
    pub fn open(&mut self) -> bool {
        if self.open.is_some() {
            return true;
        }
        if self.status(self.current).load(Ordering::Acquire) == TP_STATUS_KERNEL {
            return false;
        }
        let descriptor = self.descriptor();
        self.open_rest(&descriptor, descriptor.packets);
        self.early = Early::default();
        true
    }

    /// Begins the current block as [`Blocks::open`] does, even if the kernel has not closed the
    /// block yet. The caller has made sure that no packet is on its way into the ring, and has
    /// called poll(2) on the socket since the last call of [`Blocks::open`] (see the module
    /// `remains`). Returns whether there are packets to read.
    ///
    /// Such a block is not released to the kernel, which may add packets to it later. The reader
    /// reads these packets when the kernel hands over the block.
    #[cold]
    pub fn open_last(&mut self) -> bool {
        if self.open() {
            return true;
        }
        let is_opened = self.mark.blocks_until(self.sequence(self.current)) == Some(0);
        let descriptor = self.descriptor();
        let packets = descriptor.packets.min(self.packets_max());
        if !is_opened || packets <= self.early.packets {
            return false;
        }
        self.open_rest(&descriptor, packets);
        self.early.packets = packets;
        self.early.is_open = true;
        true
    }

    /// Begins the current block, which has this many packets, after the packets that were read
    /// early.
    fn open_rest(&mut self, descriptor: &Descriptor, packets: u32) {
        let left = packets.saturating_sub(self.early.packets);
        let next = match self.early.next {
            0 => descriptor.first as usize,
            next => next,
        };
        self.begun += u64::from(left);
        self.open = Some(Open { next, left });
    }

    /// A corrupt descriptor may say that a block has more packets than this.
    fn packets_max(&self) -> u32 {
        u32::try_from(self.block_size / HEAD).unwrap_or(u32::MAX)
    }

    /// Whether the begun block has been read to its end.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.open.is_some_and(|open| open.left == 0)
    }

    /// Passes the next packets of the begun block to `lend`, at most `most`. They stay in the ring
    /// as long as the caller uses their bytes.
    ///
    /// # Errors
    /// As [`Blocks::next_frame`]. The packets before the error are lent.
    pub fn lend<'ring>(
        &'ring mut self,
        most: usize,
        mut lend: impl FnMut(LentFrame<'ring>),
    ) -> Result<(), Corrupt> {
        for _ in 0..most {
            let Some(frame) = self.next_frame()? else {
                break;
            };
            let (data, pkttype) = (frame.data(), frame.link().pkttype);
            lend(LentFrame {
                // SAFETY: the bytes are the reader's until the block is released. `release` needs
                // the ring, which stays borrowed as long as the bytes are in use.
                bytes: unsafe { slice::from_raw_parts(data.as_ptr(), data.len()) },
                wire_len: frame.wire_len(),
                stamp: frame.stamp(),
                vlan: frame.vlan(),
                pkttype,
            });
        }
        Ok(())
    }

    /// The arrival time of the next packet of the begun block. `None` if no block is begun, or if
    /// the block has no packet left.
    #[inline]
    pub fn peek(&self) -> Option<Stamp> {
        let open = self.open.filter(|open| open.left > 0)?;
        if open.next > self.block_size - HEAD {
            // The header leads out of the block. The oldest possible stamp makes a caller that
            // merges rings read this packet next, so that it gets the error.
            return Some(Stamp::default());
        }
        // SAFETY: `next` and a header's length after it are within the block.
        let base = unsafe { self.block(self.current).add(open.next) };
        // SAFETY: as above; the kernel does not write to the block until it is released.
        let header = unsafe { base.cast::<Header>().read_unaligned() };
        Some(header.stamp)
    }

    /// Whether the kernel has also handed over the block that is `ahead` blocks after the current.
    pub fn is_ready_ahead(&self, ahead: usize) -> bool {
        let status = self.status((self.current + ahead) % self.count);
        status.load(Ordering::Acquire) != TP_STATUS_KERNEL
    }

    /// Releases the begun block to the kernel and advances to the next. Returns `None` if no block
    /// is begun, or if [`Blocks::open_last`] has begun it before the kernel closed it.
    pub fn release(&mut self) -> Option<Closed> {
        let open = self.open.take()?;
        if self.early.is_open {
            self.early.is_open = false;
            self.early.next = open.next;
            return None;
        }
        let descriptor = self.descriptor();
        let status = self.status(self.current);
        status.store(TP_STATUS_KERNEL, Ordering::Release);
        self.current = (self.current + 1) % self.count;
        self.mark = Mark::new(descriptor.sequence.wrapping_add(1), self.begun);
        Some(Closed {
            first: descriptor.first_stamp,
            last: descriptor.last_stamp,
            full: descriptor.status & TP_STATUS_BLK_TMO == 0,
        })
    }

    /// How many blocks may hold the packets that are in the ring now: the blocks that were handed
    /// over, the block that the kernel fills, and the next one, which the kernel may have opened
    /// during this call.
    pub fn pending(&self) -> usize {
        let ready = (0..self.count).take_while(|&ahead| self.is_ready_ahead(ahead));
        (ready.count() + 2).min(self.count)
    }

    /// The number of blocks.
    pub fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    fn block(&self, index: usize) -> NonNull<u8> {
        // SAFETY: indices are below `count`, and the mapping has `count` blocks.
        unsafe { self.mapping.base().add(index * self.block_size) }
    }

    #[inline(always)]
    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the status is in the block, whose start is a multiple of 8 bytes.
        let status = unsafe { self.block(index).add(STATUS) };
        // SAFETY: aligned, and mapped as long as `self`. The kernel too accesses it atomically.
        unsafe { AtomicU32::from_ptr(status.as_ptr().cast()) }
    }

    fn descriptor(&self) -> Descriptor {
        let descriptor = self.block(self.current).cast::<Descriptor>();
        // SAFETY: every block begins with a descriptor, and the current block is the reader's.
        unsafe { descriptor.read_unaligned() }
    }
}

impl Layout for Blocks {
    /// The number of packets that this reader and the readers before it have read. The reader does
    /// not increment a counter for each packet. Instead, this function computes the number.
    #[inline]
    fn taken(&self) -> u64 {
        self.begun - self.open.map_or(0, |open| u64::from(open.left))
    }

    #[inline]
    fn mark(&self) -> Option<Mark> {
        Some(self.mark)
    }

    /// The next packet of the begun block. `None` if no block is begun, or if the block has no
    /// packet left.
    ///
    /// # Errors
    /// An offset or length leads out of the block. If it is the offset of the packet's header, the
    /// whole block then counts as read.
    #[inline]
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Corrupt> {
        let (block, size) = (self.block(self.current), self.block_size);
        let Some(open) = self.open.as_mut().filter(|open| open.left > 0) else {
            return Ok(None);
        };
        let start = open.next;
        if start > size - HEAD {
            open.left = 0;
            return Err(corrupt(u32::MAX, 0, size as u64));
        }
        // SAFETY: `start` and a header's length after it are within the block.
        let base = unsafe { block.add(start) };
        // SAFETY: as above; the kernel does not write to the block until it is released.
        let header = unsafe { base.cast::<Header>().read_unaligned() };
        let stride = header.next_offset as usize;
        prefetch_ahead(base.as_ptr(), stride as u64);
        open.next = start.saturating_add(stride);
        open.left -= 1;
        let told = FrameHeader {
            mac: header.mac,
            captured: header.captured,
            len: header.len,
            stamp: header.stamp,
            status: header.status,
            // The kernel's field has 32 bits, of which the upper half is not used.
            tci: (header.tci & 0xffff) as u16,
            tpid: header.tpid,
        };
        // SAFETY: the block belongs to the reader from `start` to its end, and `HEAD` bytes fit
        // there.
        let frame = unsafe { Frame::new(base, HEAD, size - start, &told) };
        frame.map(Some)
    }
}

/// Functions for the reader of a dead member's ring (`remains`). That reader releases nothing to
/// the kernel.
impl Blocks {
    /// The kernel's number of the block at `index`; 0 if the kernel has never opened this block.
    /// The kernel numbers blocks from 1 on when it opens them (`prb_open_block`).
    pub(crate) fn sequence(&self, index: usize) -> u64 {
        debug_assert!(index < self.count);
        // SAFETY: the number is in the block's descriptor.
        let sequence = unsafe { self.block(index).add(SEQUENCE) };
        // SAFETY: aligned, as blocks begin at multiples of 8 bytes, and mapped as long as `self`.
        unsafe { AtomicU64::from_ptr(sequence.as_ptr().cast()) }.load(Ordering::Acquire)
    }

    /// Continues at the position of an earlier reader. Returns how many blocks are unread, and how
    /// many packets of the first of them the earlier reader has read.
    pub(crate) fn resume(&mut self, position: Position) -> (usize, u32) {
        let Position { taken, mark } = position;
        (self.mark, self.begun) = (mark, taken);
        let ahead = |index: usize| {
            let opened = Some(self.sequence(index)).filter(|&sequence| sequence != 0)?;
            mark.blocks_until(opened)
        };
        let unread = (0..self.count).filter_map(|index| Some((ahead(index)?, index)));
        let Some((distance, first)) = unread.min() else {
            return (0, 0);
        };
        let begins = |ahead: usize| self.sequence((first + ahead) % self.count);
        let follows = |&ahead: &usize| begins(ahead) == begins(0).wrapping_add(ahead as u64);
        let left = (0..self.count).take_while(follows).count();
        self.current = first;
        match distance {
            0 => (left, mark.frames_of(taken)),
            _ => (left, 0),
        }
    }

    /// Begins the current block. The earlier reader has read `skipped` packets of it. The kernel
    /// need not have closed the block.
    pub(crate) fn begin(&mut self, skipped: u32) {
        let descriptor = self.descriptor();
        let packets = descriptor.packets.min(self.packets_max());
        let skipped = skipped.min(packets);
        self.begun = self.begun.saturating_sub(skipped.into());
        self.mark = Mark::new(descriptor.sequence, self.begun);
        self.open_rest(&descriptor, packets);
        for _ in 0..skipped {
            let _ = self.next_frame();
        }
    }

    /// Ends the reading of the begun block, if any, and advances to the next block.
    pub(crate) fn leave(&mut self) {
        if self.open.take().is_some() {
            let sequence = self.sequence(self.current);
            self.mark = Mark::new(sequence.wrapping_add(1), self.begun);
            self.current = (self.current + 1) % self.count;
        }
    }
}
