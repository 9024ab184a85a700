//! A stand-in for netmap's kernel module: it lays out memory in a file as the module does, and
//! does there what a system call of the module does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(unreachable_pub, reason = "a module of tests")]

use fanpcap_linux::netlink::diag::Geometry;
use fanpcap_linux::packet::ring::Mapping;
use fanpcap_poller::SourceError;
use fanpcap_poller::netmap::Control;
use fanpcap_testkit::Scratch;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The offset of the `struct netmap_if`, of the first ring, and of the buffers.
pub const INTERFACE: usize = 4096;
const RINGS_AT: u64 = 8192;
const RING_LEN: u64 = 32 << 10;
const BUFFERS_AT: u64 = 256 << 10;
const LEN: u64 = 16 << 20;
pub const BUFFER_LEN: usize = 2048;

/// Rings: two that transmit, the host's that transmits, two that receive, the host's that receives.
const TX: u32 = 2;
const HOST: u32 = 1;
pub const RX: u32 = 2;
const ALL: u64 = 6;

/// `NS_MOREFRAG`, `NR_TIMESTAMP`.
pub const MORE_FRAGMENTS: u16 = 0x20;
const TIMESTAMP: u32 = 2;

/// The memory of a device.
pub struct Memory {
    file: File,
    slots: u32,
}

/// The module's side of one receive ring.
pub struct Module {
    memory: Memory,
    ring: u64,
    /// The first slot that was not given back.
    taken: u32,
    /// Buffers that have come from the wire, each with the flags of its slot.
    wire: VecDeque<(Vec<u8>, u16)>,
    pub time: Duration,
    pub syncs: u32,
    /// The error of the next system calls.
    pub error: Option<i32>,
    pub sent: Vec<Vec<u8>>,
}

/// The system calls of a source on the stand-in.
#[derive(Clone)]
pub struct Calls(Arc<Mutex<Module>>, Arc<File>);

impl Memory {
    pub fn new(slots: u32) -> Self {
        let scratch = Scratch::new().unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        let file = options.open(scratch.file("netmap")).unwrap();
        file.set_len(LEN).unwrap();
        let memory = Self { file, slots };
        let at = INTERFACE as u64;
        for (offset, count) in [(24, TX), (28, RX), (36, HOST), (40, HOST)] {
            memory.put(at + offset, &count.to_ne_bytes());
        }
        for index in 0..ALL {
            let ring = RINGS_AT + index * RING_LEN;
            memory.put(at + 56 + index * 8, &(ring - at).to_ne_bytes());
            memory.put(ring, &(BUFFERS_AT - ring).to_ne_bytes());
            memory.put(ring + 8, &slots.to_ne_bytes());
            memory.put(ring + 12, &u32::try_from(BUFFER_LEN).unwrap().to_ne_bytes());
            for slot in 0..slots {
                // The first two buffers are the module's.
                let buffer = 2 + u32::try_from(index).unwrap() * slots + slot;
                memory.put(slot_at(ring, slot), &buffer.to_ne_bytes());
            }
        }
        memory
    }

    pub fn put(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).unwrap();
    }

    fn get<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn word(&self, at: u64) -> u32 {
        u32::from_ne_bytes(self.get(at))
    }

    pub fn map(&self) -> Mapping {
        let geometry = Geometry {
            block_size: u32::try_from(LEN).unwrap(),
            block_count: 1,
            frame_size: 0,
            frame_count: 0,
            retire: 0,
        };
        Mapping::of(self.file.as_fd(), &geometry).unwrap()
    }
}

/// The offset of a receive ring.
pub fn ring_at(number: u16) -> u64 {
    RINGS_AT + u64::from(TX + HOST + u32::from(number)) * RING_LEN
}

fn slot_at(ring: u64, slot: u32) -> u64 {
    ring + 256 + u64::from(slot) * 16
}

impl Module {
    pub fn new(slots: u32, ring: u16) -> Self {
        Self {
            memory: Memory::new(slots),
            ring: ring_at(ring),
            taken: 0,
            wire: VecDeque::new(),
            time: Duration::ZERO,
            syncs: 0,
            error: None,
            sent: Vec::new(),
        }
    }

    pub fn map(&self) -> Mapping {
        self.memory.map()
    }

    /// A packet comes from the wire, in buffers of these bytes.
    pub fn receive(&mut self, parts: &[&[u8]]) {
        for (at, part) in parts.iter().enumerate() {
            let is_last = at + 1 == parts.len();
            let flags = if is_last { 0 } else { MORE_FRAGMENTS };
            self.wire.push_back((part.to_vec(), flags));
        }
    }

    /// A part of a packet comes whose end has not come yet.
    pub fn receive_part(&mut self, part: &[u8]) {
        self.wire.push_back((part.to_vec(), MORE_FRAGMENTS));
    }

    /// How many buffers have not come into the ring.
    pub fn left(&self) -> usize {
        self.wire.len()
    }

    /// The bytes of all rings but this one's.
    pub fn others(&self) -> Vec<u8> {
        let mut all = vec![0; usize::try_from(ALL * RING_LEN).unwrap()];
        self.memory.file.read_exact_at(&mut all, RINGS_AT).unwrap();
        let own = usize::try_from(self.ring - RINGS_AT).unwrap();
        all.drain(own..own + usize::try_from(RING_LEN).unwrap());
        all
    }

    /// A system call: `NIOCRXSYNC`, or poll(2).
    pub fn sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        if let Some(error) = self.error {
            return Err(io::Error::from_raw_os_error(error));
        }
        let (ring, memory) = (self.ring, &self.memory);
        let (head, current) = (memory.word(ring + 20), memory.word(ring + 24));
        assert!(head < memory.slots && current == head);
        self.taken = head;
        let mut tail = memory.word(ring + 28);
        // One slot stays free, so that a full ring differs from an empty one.
        while (tail + 1) % memory.slots != self.taken {
            let Some((bytes, flags)) = self.wire.pop_front() else {
                break;
            };
            let slot = slot_at(ring, tail);
            let buffer = u64::from(memory.word(slot)) * BUFFER_LEN as u64;
            memory.put(BUFFERS_AT + buffer, &bytes);
            memory.put(slot + 4, &u16::try_from(bytes.len()).unwrap().to_ne_bytes());
            memory.put(slot + 6, &flags.to_ne_bytes());
            tail = (tail + 1) % memory.slots;
        }
        memory.put(ring + 28, &tail.to_ne_bytes());
        if memory.word(ring + 32) & TIMESTAMP != 0 {
            memory.put(ring + 40, &self.time.as_secs().to_ne_bytes());
            memory.put(
                ring + 48,
                &u64::from(self.time.subsec_micros()).to_ne_bytes(),
            );
        }
        Ok(())
    }
}

impl Calls {
    pub fn on(module: Module) -> Self {
        let file = module.memory.file.try_clone().unwrap();
        Self(Arc::new(Mutex::new(module)), Arc::new(file))
    }

    pub fn module(&self) -> MutexGuard<'_, Module> {
        self.0.lock().unwrap()
    }
}

impl Control for Calls {
    fn sync(&self) -> io::Result<()> {
        self.module().sync()
    }

    fn waits_on(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }

    fn check(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn transmit(&self, frame: &[u8]) -> io::Result<bool> {
        self.module().sent.push(frame.to_vec());
        Ok(true)
    }
}
