//! A ring in any layout. This file has all code that depends on the layout, except the order of the
//! steps of a read (`single`).

use crate::rest::Pace;
use fanpcap_ring::{Blocks, Closed, Corrupt, Frame, Frames, Mark, Pool, Remains, Stamp};
use std::time::Duration;

/// A ring in one of three layouts. When the reader gets the ring, no frame has been read from it.
#[derive(Debug)]
pub enum Ring {
    /// `TPACKET_V2`: one frame for each packet, handed over at once (immediate mode).
    V2(Frames),
    /// `TPACKET_V3`: blocks of packets.
    V3(Blocks),
    /// Blocks of records that BPF programs write, one record for each packet.
    Pool(Pool),
}

/// A ring of one layout. The code that runs for each packet is generic, and compiled for each
/// layout.
pub(crate) trait Layout {
    /// Frames that were taken from the ring.
    fn taken(&self) -> u64;

    /// The block that is being read, or comes next. `None` if the layout has no marks: a pool
    /// itself has the positions up to which it was read.
    #[inline]
    fn mark(&self) -> Option<Mark> {
        None
    }

    /// The next frame; `None` if no frame is left.
    fn next_frame(&mut self, pace: &mut Pace) -> Result<Option<Frame<'_>>, Corrupt>;

    /// Releases to the kernel the frame or block that has been read.
    fn release(&mut self, pace: &mut Pace);
}

impl Layout for Frames {
    #[inline]
    fn taken(&self) -> u64 {
        self.taken()
    }

    #[inline]
    fn next_frame(&mut self, pace: &mut Pace) -> Result<Option<Frame<'_>>, Corrupt> {
        let frame = self.next_frame();
        if let Ok(Some(frame)) = &frame {
            pace.handle_frame(frame.stamp());
        }
        frame
    }

    #[inline]
    fn release(&mut self, _: &mut Pace) {
        self.release();
    }
}

impl Layout for Blocks {
    #[inline]
    fn taken(&self) -> u64 {
        self.taken()
    }

    #[inline]
    fn mark(&self) -> Option<Mark> {
        Some(self.mark())
    }

    #[inline]
    fn next_frame(&mut self, _: &mut Pace) -> Result<Option<Frame<'_>>, Corrupt> {
        self.next_frame()
    }

    #[inline]
    fn release(&mut self, pace: &mut Pace) {
        if let Some(closed) = self.release() {
            pace.handle_block(closed);
        }
    }
}

impl Layout for Pool {
    #[inline]
    fn taken(&self) -> u64 {
        self.taken()
    }

    #[inline]
    fn next_frame(&mut self, _: &mut Pace) -> Result<Option<Frame<'_>>, Corrupt> {
        self.next_frame()
    }

    #[inline]
    fn release(&mut self, pace: &mut Pace) {
        if let Some(drained) = self.release() {
            pace.handle_snapshot(drained);
        }
    }
}

/// The unread part of a ring taken over from another member. None of its frames is released to the
/// kernel.
impl Layout for Remains {
    fn taken(&self) -> u64 {
        self.taken()
    }

    fn mark(&self) -> Option<Mark> {
        self.mark()
    }

    fn next_frame(&mut self, _: &mut Pace) -> Result<Option<Frame<'_>>, Corrupt> {
        self.next_frame()
    }

    fn release(&mut self, _: &mut Pace) {}
}

impl Layout for Ring {
    #[inline]
    fn taken(&self) -> u64 {
        match self {
            Self::V2(frames) => frames.taken(),
            Self::V3(blocks) => blocks.taken(),
            Self::Pool(pool) => pool.taken(),
        }
    }

    #[inline]
    fn mark(&self) -> Option<Mark> {
        match self {
            Self::V2(frames) => Layout::mark(frames),
            Self::V3(blocks) => Layout::mark(blocks),
            Self::Pool(_) => None,
        }
    }

    #[inline]
    fn next_frame(&mut self, pace: &mut Pace) -> Result<Option<Frame<'_>>, Corrupt> {
        match self {
            Self::V2(frames) => Layout::next_frame(frames, pace),
            Self::V3(blocks) => Layout::next_frame(blocks, pace),
            Self::Pool(pool) => pool.next_frame_of_many(),
        }
    }

    #[inline]
    fn release(&mut self, pace: &mut Pace) {
        match self {
            Self::V2(frames) => Layout::release(frames, pace),
            Self::V3(blocks) => Layout::release(blocks, pace),
            Self::Pool(pool) => Layout::release(pool, pace),
        }
    }
}

impl Ring {
    /// The number of blocks or frames that may hold packets from before a change of the kernel's
    /// filter, which have passed only the old filter. `None` if each packet has the number of the
    /// filter that it has passed.
    pub(crate) fn pending(&self) -> Option<usize> {
        match self {
            Self::V2(frames) => Some(frames.pending()),
            Self::V3(blocks) => Some(blocks.pending()),
            Self::Pool(_) => None,
        }
    }

    /// Returns the arrival time of the next packet, if there is one. Releases to the kernel the
    /// frames or blocks that have been read, and calls `released` for each.
    pub(crate) fn head(&mut self, mut released: impl FnMut(Option<Closed>)) -> Option<Stamp> {
        match self {
            Self::V2(frames) => {
                if frames.is_held() {
                    frames.release();
                    released(None);
                }
                frames.peek()
            }
            Self::V3(blocks) => loop {
                if blocks.is_spent() {
                    released(blocks.release());
                }
                if !blocks.open() {
                    return None;
                }
                if let Some(stamp) = blocks.peek() {
                    return Some(stamp);
                }
            },
            Self::Pool(pool) => loop {
                if !pool.open() {
                    return None;
                }
                if let Some(stamp) = pool.peek() {
                    return Some(stamp);
                }
                pool.release();
            },
        }
    }

    /// Whether packets are unread in the ring of a device that is gone. Begins the block that the
    /// kernel has not closed yet. The reader has just called poll(2) on the socket.
    pub(crate) fn open_last(&mut self) -> bool {
        match self {
            Self::V2(frames) => frames.is_ready(),
            Self::V3(blocks) => blocks.open_last(),
            Self::Pool(pool) => pool.is_ready(),
        }
    }

    /// Whether the ring can have packets that the kernel has not handed over yet.
    pub(crate) fn is_late(&self) -> bool {
        !matches!(self, Self::Pool(_))
    }

    /// Whether at least a quarter of the ring is unread.
    pub(crate) fn is_filling(&self) -> bool {
        match self {
            Self::V2(frames) => frames.is_ready_ahead(frames.count() / 4),
            Self::V3(blocks) => blocks.is_ready_ahead(blocks.count() / 4),
            Self::Pool(pool) => pool.is_filling(),
        }
    }

    /// The pace of the rests at this ring, if the engine hands over packets within `timeout`; 0 is
    /// immediate mode.
    pub(crate) fn pace(&self, timeout: Option<Duration>) -> Pace {
        match self {
            Self::V2(frames) => Pace::frames(frames.count()),
            Self::V3(blocks) => Pace::blocks(blocks.count()),
            Self::Pool(pool) => Pace::records(pool.len(), timeout),
        }
    }
}
