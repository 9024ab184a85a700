//! The kernel's side of a ring: writes frames and blocks as af_packet.c does. The reader's tests
//! use this file too.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(unreachable_pub, reason = "a module of tests")]

use fanpcap_linux::packet::ring::Mapping;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

pub const BLOCK: usize = 4096;
pub const DESCRIPTOR: usize = 48;
/// `TPACKET3_HDRLEN` and `TPACKET2_HDRLEN`.
pub const HEAD_V3: usize = 68;
pub const HEAD_V2: usize = 52;
pub const FRAME: usize = 512;

/// A packet to be written.
#[derive(Clone, Debug)]
pub struct Packet {
    pub data: Vec<u8>,
    /// Bytes on the wire that were not captured.
    pub cut: u32,
    pub seconds: u32,
    pub nanoseconds: u32,
    pub vlan: Option<(u16, u16)>,
    pub pkttype: u8,
    pub ifindex: u32,
    /// Room that `PACKET_RESERVE` adds.
    pub reserve: usize,
}

/// The kernel's side of a mapping.
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for Memory {}

impl Memory {
    pub fn of(mapping: &Mapping) -> Self {
        Self {
            base: mapping.base(),
            len: mapping.len(),
        }
    }

    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len, "{at} {}", bytes.len());
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: the byte is in the mapping, which outlives its writers.
            let target = unsafe { self.base.add(at + index) };
            // SAFETY: as above; no other code uses the writer's memory.
            unsafe { target.write(*byte) };
        }
    }

    pub fn put_u32(&self, at: usize, value: u32) {
        self.put(at, &value.to_ne_bytes());
    }

    /// The status at `at`, which hands a frame or block to the reader or the kernel.
    pub fn status(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.len);
        // SAFETY: the word is in the mapping.
        let word = unsafe { self.base.add(at) };
        // SAFETY: as above, and aligned: all words in this file are.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    pub fn u32(&self, at: usize) -> u32 {
        assert!(at + 4 <= self.len);
        // SAFETY: the word is in the mapping.
        let word = unsafe { self.base.add(at) };
        // SAFETY: as above, and aligned: all words in this file are.
        unsafe { word.cast::<u32>().read() }
    }

    /// Writes everything after the header, with the `sockaddr_ll`. Returns where the frame ends.
    pub fn put_body(&self, at: usize, head: usize, packet: &Packet) -> usize {
        let link = at + head - 20;
        self.put(link + 2, &0x0800_u16.to_be_bytes());
        self.put_u32(link + 4, packet.ifindex);
        self.put(link + 8, &1_u16.to_ne_bytes());
        self.put(link + 10, &[packet.pkttype]);
        let mac = head + packet.reserve;
        self.put(at + mac, &packet.data);
        (mac + packet.data.len()).next_multiple_of(8)
    }

    pub fn put_v3(&self, at: usize, packet: &Packet, is_last: bool) -> usize {
        let (captured, mac) = (packet.data.len() as u32, (HEAD_V3 + packet.reserve) as u16);
        let end = self.put_body(at, HEAD_V3, packet);
        self.put_u32(at, if is_last { 0 } else { end as u32 });
        self.put_u32(at + 4, packet.seconds);
        self.put_u32(at + 8, packet.nanoseconds);
        self.put_u32(at + 12, captured);
        self.put_u32(at + 16, captured + packet.cut);
        self.put_u32(at + 20, 1 | status(packet));
        self.put(at + 24, &mac.to_ne_bytes());
        let (tpid, tci) = packet.vlan.unwrap_or_default();
        self.put_u32(at + 32, tci.into());
        self.put(at + 36, &tpid.to_ne_bytes());
        end
    }

    pub fn put_v2(&self, at: usize, packet: &Packet) {
        let (captured, mac) = (packet.data.len() as u32, (HEAD_V2 + packet.reserve) as u16);
        self.put_body(at, HEAD_V2, packet);
        self.put_u32(at + 4, captured + packet.cut);
        self.put_u32(at + 8, captured);
        self.put(at + 12, &mac.to_ne_bytes());
        self.put_u32(at + 16, packet.seconds);
        self.put_u32(at + 20, packet.nanoseconds);
        let (tpid, tci) = packet.vlan.unwrap_or_default();
        self.put(at + 24, &tci.to_ne_bytes());
        self.put(at + 26, &tpid.to_ne_bytes());
        self.put_u32(at + 28, 0);
        self.status(at).store(1 | status(packet), Ordering::Release);
    }

    /// A copy of the memory, as a process that maps a dead reader's ring finds it.
    pub fn copy(&self) -> Mapping {
        let copy = Mapping::anonymous(self.len).expect("memory");
        // SAFETY: both have `len` bytes, and no other code uses them meanwhile.
        unsafe { copy.base().copy_from_nonoverlapping(self.base, self.len) };
        copy
    }

    /// Fills block `index` with as many of the packets as fit.
    pub fn put_block(&self, index: usize, packets: &[Packet]) -> usize {
        self.put_numbered_block(index, 0, packets)
    }

    /// Like [`Memory::put_block`], for a block with the kernel's number `sequence`.
    pub fn put_numbered_block(&self, index: usize, sequence: u64, packets: &[Packet]) -> usize {
        let count = self.put_open_block(index, sequence, packets);
        if count > 0 {
            let last = packets[..count - 1].iter().map(length).sum::<usize>();
            // prb_close_block() does the same.
            self.put_u32(index * BLOCK + DESCRIPTOR + last, 0);
        }
        self.status(index * BLOCK + 8).store(1, Ordering::Release);
        count
    }

    /// Like [`Memory::put_numbered_block`], for a block that the kernel has not closed.
    pub fn put_open_block(&self, index: usize, sequence: u64, packets: &[Packet]) -> usize {
        let begin = index * BLOCK;
        let mut at = DESCRIPTOR;
        let mut count = 0;
        for packet in packets {
            if at + length(packet) > BLOCK {
                break;
            }
            at += self.put_v3(begin + at, packet, false);
            count += 1;
        }
        self.put_u32(begin + 12, count as u32);
        self.put_u32(begin + 16, DESCRIPTOR as u32);
        self.put(begin + 24, &sequence.to_ne_bytes());
        count
    }
}

fn length(packet: &Packet) -> usize {
    (HEAD_V3 + packet.reserve + packet.data.len()).next_multiple_of(8)
}

fn status(packet: &Packet) -> u32 {
    packet.vlan.map_or(0, |_| (1 << 4) | (1 << 6))
}
