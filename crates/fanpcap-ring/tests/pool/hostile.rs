//! Pools whose memory other processes write to during writes and reads, even the rows that only the
//! writer should write. Whatever they write, the reader reads only within the blocks, each read
//! ends, and the writer goes on.

use super::{BLOCK_LEN, CLOCKS, DEVICE, Writer, new_pool, written};
use fanpcap_ring::pool::layout::reader;
use fanpcap_ring::{Corrupt, Frame, Layout as _, Pool, Remains};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

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
                let word = pool.readers(1 + lane, reader::WAKE_AT);
                word.store(self.number()?, Ordering::Release);
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
    let mut remains = Remains::of_pool(Pool::new(writer.copy(), DEVICE.ifindex, CLOCKS), taken);
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
                writer.arrive(lane, &packet);
            }
            8 => _ = pool.open(),
            9..12 if pool.is_open() => _ = look(pool.next_frame()),
            12 if pool.is_open() => _ = pool.peek(),
            13 => drop(pool.release()),
            14 => read_out(&writer, script.number().unwrap_or(0)),
            _ => _ = (pool.is_ready(), pool.is_filled_to(4), pool.unread()),
        }
    }
    read_out(&writer, u64::MAX);
    pool.open();
    if pool.is_open() {
        drain(&mut pool);
    }
    pool.release();
}

/// Writes records and reads them while another thread writes anywhere, until that thread has
/// written `writes` times and `reads` records, or garbage in their place, were read. So the test
/// does not depend on how much time the scheduler gives each of the threads.
pub fn scribbled(writes: u64, reads: u64) {
    let (writer, mut pool) = new_pool(BLOCKS, 2);
    let (writer, scribbled) = (&writer, &AtomicU64::new(0));
    let is_enough = &AtomicBool::new(false);
    thread::scope(|scope| {
        // Also ends the other threads when a read panics.
        let _ending = Ending(is_enough);
        scope.spawn(move || scribble(writer, scribbled, is_enough));
        scope.spawn(move || write(writer, is_enough));
        let (mut read, mut last) = (0, Instant::now());
        while read < reads || scribbled.load(Ordering::Relaxed) < writes {
            pool.open();
            while pool.is_open() && look(pool.next_frame()) {
                (read, last) = (read + 1, Instant::now());
            }
            pool.release();
            thread::yield_now();
            let is_stuck = last.elapsed() > PATIENCE;
            assert!(!is_stuck, "{read} reads, {scribbled:?} writes, and no more");
        }
    });
}

/// Within this time some of the records that the other threads write can be read.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sets the flag when it is dropped.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes records until it `is_enough`.
fn write(writer: &Writer, is_enough: &AtomicBool) {
    while !is_enough.load(Ordering::Relaxed) {
        let has_room = writer.arrive(0, &written(1)) && writer.arrive(1, &written(2));
        if !has_room {
            // The member has lost the indices of its blocks. It gives all of them back.
            let returned = writer.readers(0, reader::RETURNED);
            returned.store((1 << BLOCKS) - 1, Ordering::Release);
        }
        thread::yield_now();
    }
}

/// Writes anywhere until it `is_enough`, and counts the writes.
fn scribble(writer: &Writer, scribbled: &AtomicU64, is_enough: &AtomicBool) {
    let mut state = 1_u64;
    while !is_enough.load(Ordering::Relaxed) {
        // Knuth's generator (MMIX), whose upper bits are the best ones.
        let byte = |_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d);
            state = state.wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = (0..16).map(byte).collect();
        let number = scribbled.fetch_add(1, Ordering::Relaxed);
        Script(&bytes).write(writer, number as usize % 2);
        // On one CPU, no thread waits for another's time slice to end.
        if number % 16 == 0 {
            thread::yield_now();
        }
    }
}
