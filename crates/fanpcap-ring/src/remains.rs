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
//! [`Remains::of_blocks`] only counts the unread blocks, and `num_pkts` is read when the reader
//! begins the block. The caller polls the socket between these two steps. poll(2) waits for a
//! running timer, because both hold `sk_receive_queue.lock` (`packet_poll`,
//! `prb_retire_rx_blk_timer_expired`). A block that the timer opens later is not among the counted
//! blocks, and stays empty.
//!
//! **Frames.** The kernel fills one frame after the other (`packet_increment_head`), so the
//! position determines the next frame. Readers mark the frames that they deliver
//! ([`Frames::next_frame`]). In a full ring, all frames are handed over, so their status does not
//! show where the unread frames end. The mark shows it: the frame that the reader had delivered
//! when it died has the mark.
//!
//! **Pools.** The reader keeps each lane's position in a map that the BPF program ignores. The
//! reader sets the position before it delivers each packet. Another process that maps the pool
//! continues from the position, and also sets it before each packet.

use crate::blocks::Blocks;
use crate::frame::{Corrupt, Frame, Stamp};
use crate::frames::Frames;
use crate::pool::Pool;
use crate::position::{Mark, Position};
use fanpcap_linux::packet::ring::Mapping;

/// The unread part of a ring whose reader is dead.
#[derive(Debug)]
pub struct Remains(Layout);

#[derive(Debug)]
enum Layout {
    Blocks {
        blocks: Blocks,
        /// Index of the block that the reader begins next.
        next: usize,
        /// How many unread blocks the reader has not begun yet.
        left: usize,
        /// How many packets of the first block the dead reader has read. Used once, when this
        /// reader begins that block.
        skipped: u32,
        taken: u64,
    },
    Frames {
        frames: Frames,
        left: usize,
    },
    Pool {
        pool: Pool,
        /// Whether packets that other members also get are left out.
        skips_copies: bool,
    },
}

impl Remains {
    /// The unread part of a ring of `count` blocks of `block_size` bytes. Returns `None` if
    /// `mapping` does not have the length of all blocks, or if a block has no room for a packet.
    pub fn of_blocks(
        mapping: Mapping,
        block_size: usize,
        count: usize,
        position: Position,
    ) -> Option<Self> {
        let mut blocks = Blocks::new(mapping, block_size, count)?;
        let Position { taken, mark } = position;
        blocks.resume(mark);
        let ahead = |index: usize| {
            let opened = Some(blocks.sequence(index)).filter(|&sequence| sequence != 0)?;
            mark.blocks_until(opened)
        };
        let unread = (0..count).filter_map(|index| Some((ahead(index)?, index)));
        let first = unread.min();
        let (distance, next) = first.unwrap_or_default();
        let begins = |ahead: usize| blocks.sequence((next + ahead) % count);
        let follows = |&ahead: &usize| begins(ahead) == begins(0).wrapping_add(ahead as u64);
        let left = first.map_or(0, |_| (0..count).take_while(follows).count());
        let is_marked = left > 0 && distance == 0;
        let skipped = if is_marked { mark.frames_of(taken) } else { 0 };
        Some(Self(Layout::Blocks {
            blocks,
            next,
            left,
            skipped,
            taken,
        }))
    }

    /// The unread part of a ring of `count` frames of `frame_size` bytes, in blocks of `block_size`
    /// bytes. Returns `None` if `mapping` is too short for the frames, or if a frame has no room
    /// for a packet.
    pub fn of_frames(
        mapping: Mapping,
        block_size: usize,
        frame_size: usize,
        count: usize,
        position: Position,
    ) -> Option<Self> {
        let mut frames = Frames::new(mapping, block_size, frame_size, count)?;
        let left = frames.resume(position.taken);
        Some(Self(Layout::Frames { frames, left }))
    }

    /// The unread part of a dead reader's pool, of which that reader had taken `taken` records.
    pub fn of_pool(pool: Pool, taken: u64) -> Self {
        Self(Layout::Pool {
            pool: pool.remains(taken),
            skips_copies: false,
        })
    }

    /// Leaves out packets that other members also get. Such packets stay unread.
    #[must_use]
    pub fn without_copies(mut self) -> Self {
        match &mut self.0 {
            Layout::Pool { skips_copies, .. } => *skips_copies = true,
            Layout::Blocks { .. } | Layout::Frames { .. } => {}
        }
        self
    }

    /// Whether at least half of the ring's room is unread.
    pub fn is_half_full(&self) -> bool {
        let (left, count) = match &self.0 {
            Layout::Blocks { blocks, left, .. } => (*left, blocks.count()),
            Layout::Frames { frames, left } => (*left, frames.count()),
            Layout::Pool { pool, .. } => return pool.is_half_full(),
        };
        left * 2 >= count
    }

    /// Frames that all readers together have taken from the ring since it was made.
    pub fn taken(&self) -> u64 {
        match &self.0 {
            Layout::Blocks { blocks, taken, .. } if !blocks.is_open() => *taken,
            Layout::Blocks { blocks, .. } => blocks.taken(),
            Layout::Frames { frames, .. } => frames.taken(),
            Layout::Pool { pool, .. } => pool.taken(),
        }
    }

    /// The mark of the block that is being read; between two blocks, the mark of the next one.
    /// `None` for a ring without blocks.
    pub fn mark(&self) -> Option<Mark> {
        match &self.0 {
            Layout::Blocks { blocks, .. } => Some(blocks.mark()),
            Layout::Frames { .. } | Layout::Pool { .. } => None,
        }
    }

    /// The arrival time of the next packet; `None` if no packet is left. Advances past the frame or
    /// block that was read before.
    pub fn head(&mut self) -> Option<Stamp> {
        match &mut self.0 {
            Layout::Blocks {
                blocks,
                next,
                left,
                skipped,
                taken,
            } => loop {
                if let Some(stamp) = blocks.peek() {
                    return Some(stamp);
                }
                if blocks.is_open() {
                    *taken = blocks.taken();
                    *next = blocks.leave();
                }
                *left = left.checked_sub(1)?;
                blocks.begin(*next, *taken, std::mem::take(skipped));
            },
            Layout::Frames { frames, left } => {
                if frames.leave() {
                    *left = left.saturating_sub(1);
                }
                if *left > 0 { frames.peek() } else { None }
            }
            Layout::Pool {
                pool,
                skips_copies: true,
            } => pool.peek_single(),
            Layout::Pool { pool, .. } => pool.peek(),
        }
    }

    /// The packet whose arrival time [`Remains::head`] has returned.
    ///
    /// # Errors
    /// An offset or length leads out of the ring.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Corrupt> {
        match &mut self.0 {
            Layout::Blocks { blocks, .. } => blocks.next_frame(),
            Layout::Frames { left: 0, .. } => Ok(None),
            Layout::Frames { frames, .. } => frames.next_frame(),
            Layout::Pool { pool, .. } => pool.next_frame_of_many(),
        }
    }
}
