//! A ring in any layout.

use crate::blocks::Blocks;
use crate::calls::CallRing;
use crate::frame::{Corrupt, Frame, Stamp};
use crate::frames::Frames;
use crate::layout::Layout;
use crate::pool::Pool;
use crate::position::Mark;
use crate::wall::OffsetReading;

/// A ring in one of four layouts.
#[derive(Debug)]
pub enum Ring {
    /// `TPACKET_V2`: one frame for each packet, handed over at once (immediate mode).
    V2(Frames),
    /// `TPACKET_V3`: blocks of packets.
    V3(Blocks),
    /// Blocks of records that BPF programs write, one record for each packet.
    Pool(Pool),
    /// Packets that the library of an engine returns one at a time.
    Calls(CallRing),
}

impl Layout for Ring {
    #[inline]
    fn taken(&self) -> u64 {
        match self {
            Self::V2(frames) => frames.taken(),
            Self::V3(blocks) => blocks.taken(),
            Self::Pool(pool) => pool.taken(),
            Self::Calls(calls) => calls.taken(),
        }
    }

    #[inline]
    fn mark(&self) -> Option<Mark> {
        match self {
            Self::V3(blocks) => blocks.mark(),
            Self::V2(_) | Self::Pool(_) | Self::Calls(_) => None,
        }
    }

    #[inline]
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Corrupt> {
        match self {
            Self::V2(frames) => frames.next_frame(),
            Self::V3(blocks) => blocks.next_frame(),
            Self::Pool(pool) => pool.next_frame_of_many(),
            Self::Calls(calls) => calls.next_frame(),
        }
    }
}

impl Ring {
    /// The number of blocks or frames that may hold packets from before a change of the kernel's
    /// filter, which have passed only the old filter. `None` if each packet has the number of the
    /// filter that it has passed, or if the engine runs no filter.
    pub fn pending(&self) -> Option<usize> {
        match self {
            Self::V2(frames) => Some(frames.pending()),
            Self::V3(blocks) => Some(blocks.pending()),
            Self::Pool(_) | Self::Calls(_) => None,
        }
    }

    /// Returns the arrival time of the next packet, if there is one. Releases to the kernel the
    /// frames or blocks that have been read, and calls `released` for each.
    pub fn head(&mut self, mut released: impl FnMut()) -> Option<Stamp> {
        match self {
            Self::V2(frames) => {
                if frames.is_held() {
                    frames.release();
                    released();
                }
                frames.peek()
            }
            Self::V3(blocks) => loop {
                if blocks.is_spent() {
                    blocks.release();
                    released();
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
            Self::Calls(calls) => calls.peek(),
        }
    }

    /// The last reading of the clock by which a pool's packets get their times.
    pub fn offset(&self) -> Option<OffsetReading> {
        match self {
            Self::Pool(pool) => Some(pool.offset()),
            Self::V2(_) | Self::V3(_) | Self::Calls(_) => None,
        }
    }

    /// Gives a pool's packets their times by this reading. Returns whether the times change.
    pub fn adopt_offset(&mut self, reading: OffsetReading) -> bool {
        match self {
            Self::Pool(pool) => pool.adopt_offset(reading),
            Self::V2(_) | Self::V3(_) | Self::Calls(_) => false,
        }
    }

    /// Whether packets are unread in the ring of a device that is gone. Begins the block that the
    /// kernel has not closed yet. The reader has just called poll(2) on the socket.
    pub fn open_last(&mut self) -> bool {
        match self {
            Self::V2(frames) => frames.is_ready(),
            Self::V3(blocks) => blocks.open_last(),
            Self::Pool(pool) => pool.is_ready(),
            Self::Calls(calls) => calls.is_ready(),
        }
    }

    /// Whether at least a quarter of the ring is unread.
    pub fn is_filling(&self) -> bool {
        match self {
            Self::V2(frames) => frames.is_ready_ahead(frames.count() / 4),
            Self::V3(blocks) => blocks.is_ready_ahead(blocks.count() / 4),
            Self::Pool(pool) => pool.is_filled_to(4),
            Self::Calls(_) => false,
        }
    }
}
