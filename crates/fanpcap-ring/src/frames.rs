//! TPACKET_V2: frames of one length, with one packet each. The kernel hands over each frame
//! separately.

use crate::frame::{Corrupt, Frame, FrameHeader, LINK_LEN, Stamp};
use crate::layout::Layout;
use crate::prefetch::prefetch;
use fanpcap_linux::packet::ring::Mapping;
use std::mem::{self, offset_of};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// `struct tpacket2_hdr`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    status: u32,
    len: u32,
    captured: u32,
    mac: u16,
    net: u16,
    stamp: Stamp,
    tci: u16,
    tpid: u16,
    padding: [u8; 4],
}

/// A frame's header and its `sockaddr_ll` (`TPACKET2_HDRLEN`).
const HEAD: usize = size_of::<Header>() + LINK_LEN;

const TP_STATUS_KERNEL: u32 = 0;

/// How many frames [`Frames::pending`] adds for those that the kernel may be filling on other CPUs.
const IN_FLIGHT: usize = 64;

/// How many frames ahead the reader prefetches.
const AHEAD: usize = 4;

/// The reader's side of a TPACKET_V2 ring.
#[derive(Debug)]
pub struct Frames {
    mapping: Mapping,
    frame_size: usize,
    block_size: usize,
    count: usize,
    current: usize,
    held: bool,
    taken: u64,
}

impl Frames {
    /// A ring of `count` unread frames of `frame_size` bytes, in blocks of `block_size` bytes.
    /// Returns `None` if `mapping` is too short for the frames, or if a frame has no room for a
    /// packet.
    pub fn new(
        mapping: Mapping,
        block_size: usize,
        frame_size: usize,
        count: usize,
    ) -> Option<Self> {
        let usable = frame_size >= HEAD && frame_size % 8 == 0 && block_size % 8 == 0;
        let in_block = block_size.checked_div(frame_size)?;
        let blocks = count.checked_div(in_block)?;
        let fits = blocks.checked_mul(block_size)? <= mapping.len() && blocks * in_block == count;
        (usable && fits && count > 0).then_some(Self {
            mapping,
            frame_size,
            block_size,
            count,
            current: 0,
            held: false,
            taken: 0,
        })
    }

    /// Whether the kernel has handed over the current frame to the reader.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.status(self.current).load(Ordering::Acquire) != TP_STATUS_KERNEL
    }

    /// Whether the current frame was delivered and not yet released to the kernel.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// The arrival time of the packet in the current frame. `None` if the kernel has not handed
    /// over the frame.
    #[inline]
    pub fn peek(&self) -> Option<Stamp> {
        self.is_ready().then(|| self.header().stamp)
    }

    /// Whether the kernel has also handed over the frame that is `ahead` frames after the current.
    pub fn is_ready_ahead(&self, ahead: usize) -> bool {
        let status = self.status((self.current + ahead) % self.count);
        status.load(Ordering::Acquire) != TP_STATUS_KERNEL
    }

    /// The current frame's header. It has a meaning only if the kernel has handed over the frame.
    #[inline(always)]
    fn header(&self) -> Header {
        let base = self.frame(self.current).cast::<Header>();
        // SAFETY: a frame has room for a header, and any bytes are a valid header.
        unsafe { base.read_unaligned() }
    }

    /// If the current frame was delivered, releases it to the kernel and advances to the next.
    #[inline]
    pub fn release(&mut self) {
        if self.held {
            let status = self.status(self.current);
            status.store(TP_STATUS_KERNEL, Ordering::Release);
            self.leave();
        }
    }

    /// Continues after the `taken` frames that an earlier reader has taken. Returns how many frames
    /// are unread.
    pub(crate) fn resume(&mut self, taken: u64) -> usize {
        self.taken = taken;
        self.current = usize::try_from(taken % self.count as u64).unwrap_or(0);
        let is_unread = |&ahead: &usize| {
            let index = (self.current + ahead) % self.count;
            self.is_ready_ahead(ahead) && self.handed_out(index).load(Ordering::Relaxed) == 0
        };
        (0..self.count).take_while(is_unread).count()
    }

    /// Advances to the next frame if the current frame was delivered. Does not release the frame to
    /// the kernel. Returns whether the frame was delivered.
    #[inline]
    pub(crate) fn leave(&mut self) -> bool {
        let was_held = mem::take(&mut self.held);
        if was_held {
            self.current = (self.current + 1) % self.count;
        }
        was_held
    }

    /// How many frames may hold packets: those that the kernel has handed over, and those that it
    /// may be filling now.
    pub fn pending(&self) -> usize {
        let ready = (0..self.count).take_while(|&ahead| self.is_ready_ahead(ahead));
        (ready.count() + IN_FLIGHT).min(self.count)
    }

    /// The number of frames.
    pub fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    fn frame(&self, index: usize) -> NonNull<u8> {
        let in_block = self.block_size / self.frame_size;
        let at = index / in_block * self.block_size + index % in_block * self.frame_size;
        // SAFETY: indices are below `count`, and the mapping has `count` frames laid out like this.
        unsafe { self.mapping.base().add(at) }
    }

    /// The mark of the frame at `index`; 0 if no reader has delivered the frame.
    #[inline(always)]
    fn handed_out(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the field is in the frame's header.
        let padding = unsafe { self.frame(index).add(offset_of!(Header, padding)) };
        // SAFETY: aligned as the frame is, and mapped as long as `self`.
        unsafe { AtomicU32::from_ptr(padding.as_ptr().cast()) }
    }

    #[inline(always)]
    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: a frame begins with its status, at a multiple of 8 bytes, and is mapped as long
        // as `self`; the kernel accesses it atomically too.
        unsafe { AtomicU32::from_ptr(self.frame(index).as_ptr().cast()) }
    }
}

impl Layout for Frames {
    const IS_OF_FRAMES: bool = true;

    /// The number of frames that this reader and the readers before it have delivered.
    #[inline]
    fn taken(&self) -> u64 {
        self.taken
    }

    /// The current frame, if the kernel has handed it over. The frame then counts as delivered, and
    /// gets a mark. The mark is in bytes that the kernel clears when it fills the frame again
    /// (`tpacket_rcv`, `tp_padding`).
    ///
    /// # Errors
    /// An offset or length leads out of the frame.
    #[inline]
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Corrupt> {
        if !self.is_ready() {
            return Ok(None);
        }
        self.taken += u64::from(!self.held);
        self.held = true;
        let base = self.frame(self.current);
        self.handed_out(self.current).store(1, Ordering::Relaxed);
        prefetch(self.frame((self.current + AHEAD) % self.count).as_ptr());
        let header = self.header();
        let told = FrameHeader {
            mac: header.mac,
            captured: header.captured,
            len: header.len,
            stamp: header.stamp,
            status: header.status,
            tci: header.tci,
            tpid: header.tpid,
        };
        // SAFETY: the frame's bytes belong to the reader until the frame is released; HEAD fits
        // there.
        let frame = unsafe { Frame::new(base, HEAD, self.frame_size, &told) };
        frame.map(Some)
    }
}
