//! The rings of an AF_XDP socket (Documentation/networking/af_xdp.rst): packets in chunks of the
//! process's memory. The kernel writes a packet into a chunk that the process has put into the fill
//! ring, and puts the packet's place into the ring of received packets. The reader gives the chunk
//! back by the fill ring.

use crate::frame::{Corrupt, corrupt};
use fanpcap_linux::packet::ring::Mapping;
use fanpcap_linux::xsk::{DESCRIPTOR_LEN, NEED_WAKEUP, RingMemory, Rings};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

/// The reader's side of an AF_XDP socket.
#[derive(Debug)]
pub struct Chunks {
    memory: Mapping,
    chunk_len: u64,
    received: RingMemory,
    fill: RingMemory,
    /// How many packets were released, and how many chunks were given to the kernel, modulo 2^32.
    consumed: u32,
    filled: u32,
    /// The chunks of packets that are lent.
    lent: Vec<u64>,
}

// SAFETY: all accesses to the rings by several threads are atomic, and the chunks of lent packets
// are the reader's.
unsafe impl Sync for Chunks {}

impl Chunks {
    /// The rings of a socket whose packets come into `memory`, in chunks of `chunk_len` bytes, a
    /// power of two. Gives all chunks to the kernel. `None` if the fill ring has no room for all
    /// chunks, if there is none, or if a ring is too short.
    pub fn new(memory: Mapping, chunk_len: u32, rings: Rings) -> Option<Self> {
        let Rings { received, fill } = rings;
        let chunk_len = u64::from(chunk_len);
        let count = u32::try_from(memory.len() as u64 / chunk_len.max(1)).ok()?;
        let fits = chunk_len.is_power_of_two() && (1..=fill.count).contains(&count);
        if !fits || !is_whole(&received, DESCRIPTOR_LEN) || !is_whole(&fill, size_of::<u64>()) {
            return None;
        }
        let mut chunks = Self {
            memory,
            chunk_len,
            consumed: word(&received, received.consumer).load(Ordering::Relaxed),
            filled: word(&fill, fill.producer).load(Ordering::Relaxed),
            received,
            fill,
            lent: (0..u64::from(count))
                .map(|chunk| chunk * chunk_len)
                .collect(),
        };
        chunks.give();
        Some(chunks)
    }

    /// Passes the next packets to `lend`, at most `most`. They stay in the memory as long as the
    /// caller uses their bytes, and until [`Chunks::release`].
    ///
    /// # Errors
    /// A packet's place is outside of the memory. Its chunk is lost.
    pub fn lend<'ring>(
        &'ring mut self,
        most: usize,
        mut lend: impl FnMut(&'ring [u8]),
    ) -> Result<(), Corrupt> {
        for _ in 0..(self.waiting() as usize).min(most) {
            let (at, len) = self.descriptor(self.consumed);
            self.consumed = self.consumed.wrapping_add(1);
            let end = at.checked_add(u64::from(len));
            if end.is_none_or(|end| end > self.memory.len() as u64) {
                return Err(corrupt(0, len, 0));
            }
            self.lent.push(at & !(self.chunk_len - 1));
            #[expect(clippy::cast_possible_truncation, reason = "below the memory's length")]
            let at = at as usize;
            // SAFETY: the packet is in the memory: checked above.
            let begin = unsafe { self.memory.base().add(at) };
            // SAFETY: as above. The chunk is the reader's until `release`, which needs the rings
            // that stay borrowed as long as the bytes are in use.
            lend(unsafe { slice::from_raw_parts(begin.as_ptr(), len as usize) });
        }
        Ok(())
    }

    /// How many packets wait in the ring.
    pub fn waiting(&self) -> u32 {
        let produced = word(&self.received, self.received.producer).load(Ordering::Acquire);
        let waiting = produced.wrapping_sub(self.consumed);
        waiting.min(self.received.count)
    }

    /// Gives the chunks of all lent packets back to the kernel. Returns whether the caller has to
    /// wake the driver.
    pub fn release(&mut self) -> bool {
        let consumer = word(&self.received, self.received.consumer);
        consumer.store(self.consumed, Ordering::Release);
        self.give();
        word(&self.fill, self.fill.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0
    }

    /// Puts the chunks into the fill ring, which has room for all chunks.
    fn give(&mut self) {
        for chunk in self.lent.drain(..) {
            let entry = entry(&self.fill, self.filled, size_of::<u64>());
            // SAFETY: the entry is in the ring, aligned, and the process's until the producer's
            // count shows it.
            unsafe { entry.cast::<u64>().write_volatile(chunk) };
            self.filled = self.filled.wrapping_add(1);
        }
        word(&self.fill, self.fill.producer).store(self.filled, Ordering::Release);
    }

    /// The place and the length of the packet with this number.
    fn descriptor(&self, number: u32) -> (u64, u32) {
        let entry = entry(&self.received, number, DESCRIPTOR_LEN);
        // SAFETY: the entry is in the ring, and aligned.
        let at = unsafe { entry.cast::<u64>().read_volatile() };
        // SAFETY: an entry has 16 bytes.
        let len = unsafe { entry.add(8) };
        // SAFETY: as above, and aligned.
        (at, unsafe { len.cast::<u32>().read_volatile() })
    }
}

/// Whether the memory has all of a ring.
fn is_whole(ring: &RingMemory, entry_len: usize) -> bool {
    let len = ring.mapping.len();
    let words = [ring.producer, ring.consumer, ring.flags];
    let has_words = words.into_iter().all(|at| at % 4 == 0 && at + 4 <= len);
    let end = ring.entries + ring.count as usize * entry_len;
    has_words && ring.count.is_power_of_two() && ring.entries % 8 == 0 && end <= len
}

fn word(ring: &RingMemory, at: usize) -> &AtomicU32 {
    // SAFETY: `is_whole` has checked the offset.
    let word = unsafe { ring.mapping.base().add(at) };
    // SAFETY: as above, and aligned. The kernel too accesses the word atomically.
    unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
}

fn entry(ring: &RingMemory, number: u32, len: usize) -> NonNull<u8> {
    let index = (number & (ring.count - 1)) as usize;
    // SAFETY: `is_whole` has checked that all entries are in the memory.
    unsafe { ring.mapping.base().add(ring.entries + index * len) }
}
