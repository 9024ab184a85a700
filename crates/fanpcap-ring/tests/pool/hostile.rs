//! Pools whose memory other processes write to during a read, even the maps that only BPF programs
//! should write. Whatever they write, the reader reads only within the blocks, and each read ends.

use super::{BLOCK_LEN, CLOCKS, DEVICE, Writer, new_pool, written};
use fanpcap_ring::pool::layout::{reader, writer};
use fanpcap_ring::{Corrupt, Frame, Pool, Remains};
use std::sync::atomic::Ordering;
use std::thread;

const BLOCKS: usize = 3;

/// The most reads until a snapshot is spent: in each lane and block that can be unread at once,
/// each read takes a record's room or the rest of the block.
const READS_MAX: usize = 2 * (BLOCKS + 2) * BLOCK_LEN / 8;

/// The actions of a test, which the test's bytes choose.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    fn short(&mut self) -> Option<u64> {
        self.take().map(|bytes| u16::from_le_bytes(bytes).into())
    }

    /// A number near 0, or any number.
    fn number(&mut self) -> Option<u64> {
        match self.short()? {
            0xffff => self.take().map(u64::from_le_bytes),
            near => Some(near),
        }
    }

    fn write(&mut self, pool: &Writer, lane: usize) -> Option<()> {
        match self.byte()? % 8 {
            0 => pool.position(lane).store(self.number()?, Ordering::Release),
            1 => pool.read(lane).store(self.number()?, Ordering::Release),
            2 => pool.left(lane).store(self.number()?, Ordering::Release),
            3 => {
                let word = pool.readers(0, reader::RETURNED);
                word.store(self.number()?, Ordering::Release);
            }
            4 => {
                let sequence = self.number()?;
                let number = u32::from_le_bytes(self.take()?);
                pool.table(lane, sequence).store(number, Ordering::Release);
            }
            5 => pool.put(usize::try_from(self.short()?).ok()?, &self.take::<8>()?),
            6 => {
                let at = usize::try_from(self.short()? & !7).ok()?;
                pool.put(at + 8, &u32::to_ne_bytes(self.short()? as u32));
            }
            _ => {
                let word = pool.writers(0, writer::FREE);
                word.store(self.number()? & ((1 << BLOCKS) - 1), Ordering::Release);
            }
        }
        Some(())
    }
}

/// Uses all of a frame. Returns true if there is a frame, or garbage in place of one.
fn look(found: Result<Option<Frame<'_>>, Corrupt>) -> bool {
    if let Ok(Some(frame)) = &found {
        let sum: u64 = frame.data().iter().map(|&byte| u64::from(byte)).sum();
        assert!(frame.data().len() <= BLOCK_LEN && sum <= 255 * BLOCK_LEN as u64);
        let _ = (frame.link(), frame.tag_inside(), frame.filter());
        let _ = (frame.stamp(), frame.wire_len());
    }
    !matches!(found, Ok(None))
}

fn drain(pool: &mut Pool) {
    let mut reads = 0;
    while look(pool.next_frame()) {
        reads += 1;
        assert!(reads <= READS_MAX, "no end");
    }
}

/// Reads all that a dead reader has left.
fn read_out(writer: &Writer, taken: u64) {
    let mut remains = Remains::of_pool(Pool::new(writer.copy(), &DEVICE, CLOCKS), taken);
    let mut reads = 0;
    while remains.head().is_some() {
        look(remains.next_frame());
        reads += 1;
        assert!(reads <= READS_MAX, "no end");
    }
    let _ = (remains.is_half_full(), remains.taken());
}

/// Writes and reads as `bytes` say.
pub fn run(bytes: &[u8]) {
    let mut script = Script(bytes);
    let (writer, mut pool) = new_pool(BLOCKS, 2);
    while let Some(step) = script.byte() {
        let lane = usize::from(step >> 4) % 2;
        match step & 15 {
            0..5 => {
                if script.write(&writer, lane).is_none() {
                    break;
                }
            }
            5..8 => {
                let mut packet = written(script.number().unwrap_or(0));
                packet.data = vec![step; usize::from(script.byte().unwrap_or(0)) * 8];
                // The BPF program reads its position and its blocks from memory that no other
                // process can write. Where the test has written there, the program would stop.
                if writer.position(lane).load(Ordering::Acquire) < 1 << 40 {
                    writer.arrive(lane, &packet);
                }
            }
            8 => _ = pool.open(),
            9..12 if pool.is_open() => _ = look(pool.next_frame()),
            12 if pool.is_open() => _ = pool.peek(),
            13 => drop(pool.release()),
            14 => read_out(&writer, script.number().unwrap_or(0)),
            _ => _ = (pool.is_ready(), pool.is_filling(), pool.unread()),
        }
    }
    read_out(&writer, u64::MAX);
    pool.open();
    if pool.is_open() {
        drain(&mut pool);
    }
    pool.release();
}

/// Reads while another thread writes anywhere, `writes` times. Returns the number of reads.
pub fn scribbled(writes: u32) -> u32 {
    let (writer, mut pool) = new_pool(BLOCKS, 2);
    let mut reads = 0;
    thread::scope(|scope| {
        let scribbler = scope.spawn(move || {
            let mut state = 1_u64;
            for write in 0..writes {
                // Knuth's generator (MMIX), whose upper bits are the best ones.
                let byte = |_| {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d);
                    state = state.wrapping_add(0x1405_7b7e_f767_814f);
                    (state >> 56) as u8
                };
                let bytes: Vec<u8> = (0..16).map(byte).collect();
                Script(&bytes).write(&writer, write as usize % 2);
            }
        });
        while !scribbler.is_finished() {
            pool.open();
            while pool.is_open() && look(pool.next_frame()) {
                reads += 1;
            }
            pool.release();
        }
    });
    reads
}
