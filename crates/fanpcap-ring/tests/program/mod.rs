//! Writes BPF ring buffers in ordinary memory as the kernel and a BPF program do.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(unreachable_pub, reason = "a module of tests")]

pub mod hostile;

use fanpcap_linux::bpf::RingMapping;
use fanpcap_ring::{LinkInfo, Records};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

pub const LEN: usize = 1 << 16;
pub const BUSY: u32 = 1 << 31;
pub const DISCARDED: u32 = 1 << 30;

/// The time of day less the monotonic clock, for these tests.
pub const OFFSET: u64 = 1_000_000_000_000;

pub const DEVICE: LinkInfo = LinkInfo {
    protocol: 0,
    ifindex: 5,
    hatype: 1,
    pkttype: 0,
};

/// A packet to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    pub stamp: u64,
    pub data: Vec<u8>,
    /// Bytes on the wire that were not captured.
    pub cut: u32,
    /// 1 for a frame that the host sends, and 2 more if its tag was beside it.
    pub flags: u16,
    pub filter: u32,
    /// Bytes of the record after the captured ones.
    pub spare: u32,
}

/// A packet with this stamp.
pub fn written(stamp: u64) -> Written {
    Written {
        stamp,
        data: (0..60).collect(),
        cut: 0,
        flags: 0,
        filter: 0,
        spare: 4,
    }
}

/// The kernel's side of one lane. The mapping must outlive it.
pub struct Program {
    consumer: NonNull<std::sync::atomic::AtomicU64>,
    read: NonNull<std::sync::atomic::AtomicU64>,
    producer: NonNull<std::sync::atomic::AtomicU64>,
    data: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Program {}

impl Program {
    pub fn of(mapping: &RingMapping) -> Self {
        Self {
            consumer: mapping.consumer().into(),
            read: mapping.read().into(),
            producer: mapping.producer().into(),
            data: mapping.data(),
            len: mapping.len(),
        }
    }

    pub fn consumer(&self) -> u64 {
        // SAFETY: the mapping outlives `self`.
        unsafe { self.consumer.as_ref() }.load(Ordering::Acquire)
    }

    pub fn read(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.read.as_ref() }.load(Ordering::Acquire)
    }

    pub fn producer(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.producer.as_ref() }.load(Ordering::Acquire)
    }

    pub fn set_producer(&self, position: u64) {
        // SAFETY: as above.
        unsafe { self.producer.as_ref() }.store(position, Ordering::Release);
    }

    pub fn set_consumer(&self, position: u64) {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }.store(position, Ordering::Release);
    }

    pub fn set_read(&self, position: u64) {
        // SAFETY: as above.
        unsafe { self.read.as_ref() }.store(position, Ordering::Release);
    }

    pub fn put(&self, position: u64, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            let at = (position as usize).wrapping_add(index) & (self.len - 1);
            // SAFETY: the byte is in the mapping.
            let target = unsafe { self.data.add(at) };
            // SAFETY: as above; no other code touches reserved memory.
            unsafe { target.write(*byte) };
        }
    }

    /// The length and state of the record at a position.
    pub fn word(&self, position: u64) -> &AtomicU32 {
        let at = position as usize & (self.len - 8);
        // SAFETY: the word is in the mapping.
        let word = unsafe { self.data.add(at) };
        // SAFETY: as above, and aligned.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    /// Reserves room for `len` bytes (`__bpf_ringbuf_reserve`). `None` if there is no room.
    pub fn reserve(&self, len: u32) -> Option<u64> {
        let position = self.producer();
        let end = position + (u64::from(len) + 8).next_multiple_of(8);
        if end - self.consumer() > self.len as u64 - 1 {
            return None;
        }
        self.word(position).store(len | BUSY, Ordering::Relaxed);
        self.set_producer(end);
        Some(position)
    }

    /// Writes a packet into reserved room.
    pub fn fill(&self, position: u64, packet: &Written) {
        let captured = packet.data.len() as u32;
        let mut bytes = packet.stamp.to_ne_bytes().to_vec();
        bytes.extend(captured.to_ne_bytes());
        bytes.extend((captured + packet.cut).to_ne_bytes());
        bytes.extend(3_u16.to_ne_bytes());
        bytes.extend(packet.flags.to_ne_bytes());
        bytes.extend(packet.filter.to_ne_bytes());
        bytes.extend(&packet.data);
        self.put(position + 8, &bytes);
    }

    /// Commits a record, or discards it (`bpf_ringbuf_commit`).
    pub fn commit(&self, position: u64, flags: u32) {
        let word = self.word(position);
        let len = word.load(Ordering::Relaxed) & !BUSY;
        word.store(len | flags, Ordering::Release);
    }

    /// Reserves, writes and commits. Returns false when the ring is full.
    pub fn arrive(&self, packet: &Written) -> bool {
        let Some(position) = self.reserve(room_of(packet)) else {
            return false;
        };
        self.fill(position, packet);
        self.commit(position, 0);
        true
    }

    /// A copy of the memory, as another process maps it.
    pub fn copy(&self) -> RingMapping {
        let copy = RingMapping::anonymous(self.len).expect("memory");
        copy.consumer().store(self.consumer(), Ordering::Relaxed);
        copy.read().store(self.read(), Ordering::Relaxed);
        copy.producer().store(self.producer(), Ordering::Relaxed);
        // SAFETY: both have `len` bytes, and no other code uses them meanwhile.
        unsafe { copy.data().copy_from_nonoverlapping(self.data, self.len) };
        copy
    }
}

/// Bytes of a packet's record.
pub fn room_of(packet: &Written) -> u32 {
    24 + packet.data.len() as u32 + packet.spare
}

/// A device with `lanes` lanes: the kernel's side and the reader's.
pub fn device(lanes: usize) -> (Vec<Program>, Records) {
    let mappings: Vec<_> = (0..lanes)
        .map(|_| RingMapping::anonymous(LEN).expect("memory"))
        .collect();
    let programs = mappings.iter().map(Program::of).collect();
    let records = Records::new(mappings, &DEVICE, || OFFSET);
    (programs, records.expect("a lane"))
}
