//! A source in ordinary memory, groups with tables, and members that read their pools.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(unreachable_pub, reason = "a module of tests")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use fanpcap_buckets::layout::{self, BUCKETS, OWNERS, RANK_COUNT, RANKS, SIZE, SIZE_WITH_CLASSES};
use fanpcap_buckets::{Share, Slot, plan};
use fanpcap_linux::bpf::may_load;
use fanpcap_linux::file::sealed;
use fanpcap_linux::memory::Memory;
use fanpcap_poll::{PoolFile, PoolKind, PoolSize};
use fanpcap_poller::{
    Burst, FanOut, Limit, Limits, MemberSlot, NewGroup, Packet, Policy, Source, SourceCounts,
    SourceError, Wants,
};
use fanpcap_ring::{Layout as _, Pool, PoolClocks};
use fanpcap_steer::GroupOptions;
use fanpcap_steer::native::Evaluator;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Lends frames that the test has.
pub struct Fake<'f> {
    frames: Vec<Packet<'f>>,
    at: usize,
    lent: usize,
    pub released: u64,
    /// How many quarters of the source's memory are filled after so many bursts.
    pub filled: fn(u64) -> u8,
    bursts: u64,
    pub queue: u16,
}

impl<'f> Fake<'f> {
    pub fn new(frames: impl IntoIterator<Item = &'f [u8]>) -> Self {
        Self::of_packets(frames.into_iter().map(Packet::of).collect())
    }

    pub fn of_packets(frames: Vec<Packet<'f>>) -> Self {
        Self {
            frames,
            at: 0,
            lent: 0,
            released: 0,
            filled: |_| 0,
            bursts: 0,
            queue: 0,
        }
    }
}

impl Source for Fake<'_> {
    fn burst<'s>(&'s mut self, burst: &mut Burst<'s>) -> Result<(), SourceError> {
        assert_eq!(self.lent, 0, "the last burst is released");
        self.bursts += 1;
        let rest = &self.frames[self.at..];
        self.lent = rest.len().min(burst.room());
        rest.iter()
            .take(self.lent)
            .for_each(|&it| _ = burst.push(it));
        Ok(())
    }

    fn has_filled(&self, quarters: u8) -> bool {
        (self.filled)(self.bursts) >= quarters
    }

    fn release(&mut self) {
        self.at += self.lent;
        self.released += self.lent as u64;
        self.lent = 0;
    }

    fn check(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn transmit(&mut self, _: &[u8]) -> io::Result<bool> {
        Ok(true)
    }

    fn queue(&self) -> u16 {
        self.queue
    }

    fn counts(&mut self) -> SourceCounts {
        SourceCounts::default()
    }
}

/// The memory of a table without owners. With classes, it has a part for each.
pub fn table(has_classes: bool) -> Arc<Memory> {
    let len = if has_classes { SIZE_WITH_CLASSES } else { SIZE };
    let len = u32::try_from(len).unwrap();
    Arc::new(sealed::create_memory(c"fanpcap_table", len).unwrap())
}

/// Shares the buckets of a part among slots, as `fanpcap-group` does.
pub fn share(table: &Memory, part: usize, slots: &[u8]) {
    let begin = layout::part(part);
    let bytes = &table.bytes()[begin..];
    let share = |&slot: &u8| Share {
        slot: Slot(slot),
        weight: 1,
    };
    let shares: Vec<Share> = slots.iter().map(share).collect();
    for step in plan(&[None; BUCKETS], &shares) {
        bytes[OWNERS + step.bucket].store(step.to.0, Ordering::Relaxed);
    }
    for (rank, slot) in slots.iter().enumerate() {
        bytes[RANKS + rank].store(*slot, Ordering::Relaxed);
    }
    let count = table.view::<AtomicU32>(begin + RANK_COUNT, 1).unwrap();
    count[0].store(u32::try_from(slots.len()).unwrap(), Ordering::Relaxed);
}

/// A group with this steering program.
pub fn group(source: &str, table: &Arc<Memory>) -> NewGroup {
    let tree = fanpcap_steer::tree(source, &|_| Err("no libpcap".to_owned())).unwrap();
    NewGroup {
        steering: Evaluator::of_group(&tree),
        table: Arc::clone(table),
        options: GroupOptions::default(),
        user: 0,
        filter: None,
    }
}

pub const ALL: Wants = Wants {
    snaplen: 262_144,
    sent: true,
};

pub const SIZE_OF_POOL: PoolSize = PoolSize {
    lanes: 1,
    block_len: 256 << 10,
    blocks: 8,
};

/// A policy without limits. Pools are those of a poller, if the test may make them.
pub fn policy() -> Policy {
    let none = Limit {
        all: u64::MAX,
        each: u64::MAX,
    };
    let may_load = may_load(std::process::id()) == Some(true);
    Policy {
        pools: if may_load {
            PoolKind::Array
        } else {
            PoolKind::File
        },
        limits: Limits {
            connections: none,
            groups: none,
            bytes: none,
        },
    }
}

/// Admits a member to a slot, and returns its reader.
pub fn admit(fan_out: &mut FanOut, at: MemberSlot, size: PoolSize) -> Pool {
    let (file, mut lanes) = PoolFile::create(PoolKind::File, size).unwrap();
    let former = fan_out.admit(at, lanes.remove(0), ALL).unwrap();
    assert!(former.is_none());
    reader(&file)
}

/// Opens a pool as a member does.
pub fn reader(file: &PoolFile) -> Pool {
    let clocks = PoolClocks {
        now: || u64::MAX,
        offset: || 0,
    };
    Pool::new(file.map().unwrap(), 1, clocks)
}

/// Reads all frames of a pool.
pub fn drain(pool: &mut Pool) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while pool.open() {
        while let Some(frame) = pool.next_frame().unwrap() {
            all.push(frame.data().to_vec());
        }
        pool.release();
    }
    all
}

/// Polls until the source has no more packets. Returns the slots that were woken.
pub fn poll_all(fan_out: &mut FanOut, source: &mut Fake<'_>) -> Vec<MemberSlot> {
    let mut woken = Vec::new();
    let mut wake = |at| woken.push(at);
    while fan_out.poll(source, 1000, &mut wake).unwrap() > 0 {}
    woken
}

/// The name by which a test program runs one of its tests. `module` is the test's module, with the
/// program's name.
pub fn own_name(module: &str, test: &str) -> String {
    match module.split_once("::") {
        Some((_, module)) => format!("{module}::{test}"),
        None => test.to_owned(),
    }
}
