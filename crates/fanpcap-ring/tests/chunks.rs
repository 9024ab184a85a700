//! Reads AF_XDP rings that are written as the kernel writes them. Rings full of garbage do no harm.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "lengths in here are below 65536, and a test may panic"
)]

use fanpcap_linux::packet::ring::Mapping;
use fanpcap_linux::xsk::{DESCRIPTOR_LEN, NEED_WAKEUP, RingMemory, Rings};
use fanpcap_ring::Chunks;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

const CHUNK: usize = 2048;
const CHUNKS: usize = 16;

/// The kernel's side: the memory, and the two rings.
struct Kernel {
    memory: NonNull<u8>,
    received: NonNull<u8>,
    fill: NonNull<u8>,
    /// The chunks that the kernel may fill.
    free: VecDeque<u64>,
    taken: u32,
    _mappings: [Mapping; 3],
}

/// Offsets in both rings.
const PRODUCER: usize = 0;
const CONSUMER: usize = 64;
const FLAGS: usize = 128;
const ENTRIES: usize = 192;

fn ring(mapping: Mapping, count: u32) -> RingMemory {
    RingMemory {
        mapping,
        producer: PRODUCER,
        consumer: CONSUMER,
        flags: FLAGS,
        entries: ENTRIES,
        count,
    }
}

fn new() -> (Kernel, Chunks) {
    let lens = [
        CHUNK * CHUNKS,
        ENTRIES + CHUNKS * DESCRIPTOR_LEN,
        ENTRIES + CHUNKS * 8,
    ];
    let [memory, received, fill] = lens.map(|len| Mapping::anonymous(len).unwrap());
    let again = [&memory, &received, &fill].map(|it| it.again().unwrap());
    let kernel = Kernel {
        memory: again[0].base(),
        received: again[1].base(),
        fill: again[2].base(),
        free: VecDeque::new(),
        taken: 0,
        _mappings: again,
    };
    let rings = Rings {
        received: ring(received, CHUNKS as u32),
        fill: ring(fill, CHUNKS as u32),
    };
    (kernel, Chunks::new(memory, CHUNK as u32, rings).unwrap())
}

impl Kernel {
    fn word(&self, ring: NonNull<u8>, at: usize) -> &AtomicU32 {
        // SAFETY: the tests use the offsets above.
        let word = unsafe { ring.add(at) };
        // SAFETY: as above, and aligned.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    /// Takes the chunks in the fill ring.
    fn refill(&mut self) {
        let produced = self.word(self.fill, PRODUCER).load(Ordering::Acquire);
        while self.taken != produced {
            let at = ENTRIES + 8 * (self.taken as usize % CHUNKS);
            // SAFETY: the entry is in the ring.
            let entry = unsafe { self.fill.add(at) };
            // SAFETY: as above, and aligned.
            let chunk = unsafe { entry.cast::<u64>().read_volatile() };
            self.free.push_back(chunk);
            self.taken = self.taken.wrapping_add(1);
        }
    }

    /// Puts a descriptor into the ring of received packets.
    fn put(&self, at: u64, len: u32) {
        let produced = self.word(self.received, PRODUCER);
        let number = produced.load(Ordering::Relaxed);
        let offset = ENTRIES + DESCRIPTOR_LEN * (number as usize % CHUNKS);
        // SAFETY: the entry is in the ring.
        let entry = unsafe { self.received.add(offset) };
        // SAFETY: as above, and aligned.
        unsafe {
            entry
                .cast::<[u64; 2]>()
                .write_volatile([at, u64::from(len)])
        };
        produced.store(number.wrapping_add(1), Ordering::Release);
    }

    /// A packet arrives. Returns false if the kernel has no chunk.
    fn arrive(&mut self, bytes: &[u8]) -> bool {
        self.refill();
        let Some(chunk) = self.free.pop_front() else {
            return false;
        };
        assert!(chunk as usize % CHUNK == 0 && (chunk as usize) < CHUNK * CHUNKS);
        let at = chunk + 256;
        // SAFETY: the chunk is in the memory.
        let to = unsafe { self.memory.add(at as usize) };
        // SAFETY: a chunk has room for the tests' packets.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        self.put(at, bytes.len() as u32);
        true
    }
}

proptest! {
    #[test]
    fn packets_are_read_as_they_were_written_and_each_chunk_comes_back(
        rounds in proptest::collection::vec(
            (proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..500), 0..30),
             1..20_usize), 1..12),
    ) {
        let (mut kernel, mut chunks) = new();
        let mut waiting: VecDeque<Vec<u8>> = VecDeque::new();
        for (packets, most) in rounds {
            for packet in packets {
                let has_room = kernel.arrive(&packet);
                prop_assert_eq!(has_room, waiting.len() < CHUNKS);
                if has_room {
                    waiting.push_back(packet);
                }
            }
            let mut lent = Vec::new();
            chunks.lend(most, |bytes| lent.push(bytes)).unwrap();
            prop_assert_eq!(lent.len(), most.min(waiting.len()));
            for bytes in lent {
                prop_assert_eq!(bytes, &waiting.pop_front().unwrap());
            }
            chunks.release();
        }
    }

    #[test]
    fn whatever_the_rings_have_what_is_lent_lies_within(
        descriptors in proptest::collection::vec((any::<u64>(), any::<u32>()), 1..40),
        near in proptest::collection::vec((0..70_000_u64, 0..70_000_u32), 1..40),
        produced in any::<u32>(),
    ) {
        let (kernel, mut chunks) = new();
        for (at, len) in descriptors.into_iter().chain(near) {
            kernel.put(at, len);
            let mut sum = 0_u64;
            let mut count = 0;
            for _ in 0..=CHUNKS {
                let _ = chunks.lend(64, |bytes| {
                    assert!(bytes.len() <= CHUNK * CHUNKS);
                    sum += bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>();
                    count += 1;
                });
            }
            prop_assert!(count <= 1 && sum == 0);
            chunks.release();
        }
        kernel.word(kernel.received, PRODUCER).store(produced, Ordering::Release);
        let mut count = 0;
        let _ = chunks.lend(1000, |_| count += 1);
        prop_assert!(count <= CHUNKS);
        chunks.release();
    }
}

#[test]
fn a_driver_that_sleeps_is_to_be_woken() {
    let (kernel, mut chunks) = new();
    assert!(!chunks.release());
    kernel
        .word(kernel.fill, FLAGS)
        .store(NEED_WAKEUP, Ordering::Release);
    assert!(chunks.release());
}

#[test]
fn rings_that_do_not_fit_their_memory_are_none() {
    let begin = |chunk: u32, received: usize, count: u32| {
        let memory = Mapping::anonymous(CHUNK * CHUNKS).unwrap();
        let rings = Rings {
            received: ring(Mapping::anonymous(received).unwrap(), CHUNKS as u32),
            fill: ring(Mapping::anonymous(ENTRIES + 8 * 64).unwrap(), count),
        };
        Chunks::new(memory, chunk, rings).is_some()
    };
    let whole = ENTRIES + CHUNKS * DESCRIPTOR_LEN;
    assert!(begin(CHUNK as u32, whole, 16));
    assert!(!begin(CHUNK as u32, whole - 1, 16), "a short ring");
    assert!(!begin(CHUNK as u32, whole, 8), "no room for all chunks");
    assert!(!begin(CHUNK as u32, whole, 24), "no power of two");
    assert!(!begin(CHUNK as u32, whole, 128), "a short fill ring");
    assert!(!begin(0, whole, 16) && !begin(1000, whole, 64) && !begin(1 << 20, whole, 16));
}
