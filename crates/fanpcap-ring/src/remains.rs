//! The unread part of a dead reader's ring, read from that reader's position on.
//!
//! No other process reads the ring, and the kernel adds nothing to it: the caller has made sure
//! that the socket rejects all packets and that no packet is on its way into the ring. This reader
//! releases nothing to the kernel. So if this reader dies too, another one finds all packets in
//! their places.
//!
//! **Blocks** (net/packet/af_packet.c). The kernel opens blocks in the order of the ring and
//! numbers them: `prb_open_block` writes `seq_num`, sets `num_pkts` to 0 and `offset_to_first_pkt`
//! to the end of the descriptor. `prb_fill_curr_block` counts a packet in `num_pkts` and writes its
//! `tp_next_offset`; `tpacket_rcv` copies the packet afterwards. So the packets of an open block
//! can be walked like those of a closed block, once the kernel is writing no packet.
//! `prb_close_block` changes the status, the last packet's `tp_next_offset` (to 0) and the time of
//! the last packet. This reader uses none of these, so the retire timer may close the open block at
//! any time.
//!
//! The position's mark names a block. The dead reader has read all blocks before this one, whatever
//! their status: a block that was released to the kernel keeps its number and `num_pkts` until the
//! kernel opens the block again. The blocks from the mark on are unread. The last of these may be
//! open.
//!
//! When the timer has closed a block, it opens the next block if that block is the kernel's. For a
//! moment, the newly opened block has its new number and still its old `num_pkts`. So
//! [`Remains::of`] only counts the unread blocks, and `num_pkts` is read when the reader
//! begins the block. The caller polls the socket between these two steps. poll(2) waits for a
//! running timer, because both hold `sk_receive_queue.lock` (`packet_poll`,
//! `prb_retire_rx_blk_timer_expired`). A block that the timer opens later is not among the counted
//! blocks, and stays empty.
//!
//! **Frames.** The kernel fills one frame after the other (`packet_increment_head`), so the
//! position determines the next frame. Readers mark the frames that they deliver
//! (`Frames::next_frame`). In a full ring, all frames are handed over, so their status does not
//! show where the unread frames end. The mark shows it: the frame that the reader had delivered
//! when it died has the mark.
//!
//! **Pools.** The reader keeps each lane's position in a map that the BPF program ignores. The
//! reader sets the position before it delivers each packet. Another process that maps the pool
//! continues from the position, and also sets it before each packet.

use crate::frame::{Corrupt, Frame, Stamp};
use crate::layout::Layout;
use crate::pool::Pool;
use crate::position::{Mark, Position};
use crate::ring::Ring;
use crate::wall::OffsetReading;
use std::mem;

/// The unread part of a ring whose reader is dead.
#[derive(Debug)]
pub struct Remains {
    ring: Ring,
    /// How many unread blocks the reader has not begun yet, or how many frames are unread. Unused
    /// for a pool.
    left: usize,
    /// How many packets of the first block the dead reader has read. Used once, when this reader
    /// begins that block.
    skipped: u32,
    /// Whether packets of a pool that other members also get are left out.
    skips_copies: bool,
}

impl Remains {
    /// The unread part of a ring of which nothing has been read by this process, after `position`.
    pub fn of(mut ring: Ring, position: Position) -> Self {
        let (left, skipped) = match &mut ring {
            Ring::V2(frames) => (frames.resume(position.taken), 0),
            Ring::V3(blocks) => blocks.resume(position),
            Ring::Pool(pool) => {
                pool.resume(position.taken);
                (0, 0)
            }
            // No member takes such packets over.
            Ring::Calls(_) => (0, 0),
        };
        Self {
            ring,
            left,
            skipped,
            skips_copies: false,
        }
    }

    /// The unread part of a dead reader's pool, of which that reader had taken `taken` records.
    pub fn of_pool(pool: Pool, taken: u64) -> Self {
        let mark = Mark::default();
        Self::of(Ring::Pool(pool), Position { taken, mark })
    }

    /// Leaves out packets that other members also get. Such packets stay unread.
    #[must_use]
    pub fn without_copies(mut self) -> Self {
        self.skips_copies = true;
        self
    }

    /// As [`Ring::offset`].
    pub fn offset(&self) -> Option<OffsetReading> {
        self.ring.offset()
    }

    /// As [`Ring::adopt_offset`].
    pub fn adopt_offset(&mut self, reading: OffsetReading) -> bool {
        self.ring.adopt_offset(reading)
    }

    /// Whether at least half of the ring's room is unread.
    pub fn is_half_full(&self) -> bool {
        let count = match &self.ring {
            Ring::V2(frames) => frames.count(),
            Ring::V3(blocks) => blocks.count(),
            Ring::Pool(pool) => return pool.is_filled_to(2),
            Ring::Calls(_) => return false,
        };
        self.left * 2 >= count
    }

    /// The arrival time of the next packet; `None` if no packet is left. Advances past the frame or
    /// block that was read before.
    pub fn head(&mut self) -> Option<Stamp> {
        match &mut self.ring {
            Ring::V2(frames) => {
                if frames.leave() {
                    self.left = self.left.saturating_sub(1);
                }
                if self.left > 0 { frames.peek() } else { None }
            }
            Ring::V3(blocks) => loop {
                if let Some(stamp) = blocks.peek() {
                    return Some(stamp);
                }
                blocks.leave();
                self.left = self.left.checked_sub(1)?;
                blocks.begin(mem::take(&mut self.skipped));
            },
            Ring::Pool(pool) if self.skips_copies => pool.peek_single(),
            Ring::Pool(pool) => pool.peek(),
            Ring::Calls(_) => None,
        }
    }
}

impl Layout for Remains {
    fn taken(&self) -> u64 {
        self.ring.taken()
    }

    fn mark(&self) -> Option<Mark> {
        self.ring.mark()
    }

    /// The packet whose arrival time [`Remains::head`] has returned.
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Corrupt> {
        if matches!(self.ring, Ring::V2(_)) && self.left == 0 {
            return Ok(None);
        }
        self.ring.next_frame()
    }
}
