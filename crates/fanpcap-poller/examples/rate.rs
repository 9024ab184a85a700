//! Measures a poller's thread and a member's reader on two CPUs: packets of a source in ordinary
//! memory go through `flow` into one pool or several, and one thread reads the pools. The times are
//! CPU times of the threads, so that other processes disturb them less.
//!
//!     cargo run --release -p fanpcap-poller --example rate -- [FRAME_LEN] [MEMBERS] [SECONDS]
#![allow(
    clippy::print_stdout,
    reason = "an example's output is for the terminal"
)]

use anyhow::{Context, Result, ensure};
use fanpcap_buckets::layout::{BUCKETS, OWNERS, RANK_COUNT, RANKS, SIZE};
use fanpcap_buckets::{Share, Slot, plan};
use fanpcap_gen::{Description, Lengths};
use fanpcap_linux::file::sealed;
use fanpcap_linux::process::cpu::pin;
use fanpcap_linux::wait::clock::{monotonic_ns, realtime_offset_ns, thread_cpu_ns};
use fanpcap_poll::{PoolFile, PoolKind, PoolSize};
use fanpcap_poller::{
    Burst, FanOut, MemberSlot, NewGroup, Packet, Source, SourceCounts, SourceError, Wants,
};
use fanpcap_ring::{Layout as _, Pool, PoolClocks};
use fanpcap_steer::GroupOptions;
use fanpcap_steer::native::Evaluator;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

/// The frames again and again, as a device whose memory is always full.
struct Endless {
    frames: Vec<Vec<u8>>,
    at: usize,
}

impl Source for Endless {
    fn burst<'s>(&'s mut self, burst: &mut Burst<'s>) -> Result<(), SourceError> {
        let Self { frames, at } = self;
        while burst.push(Packet::of(&frames[*at])) {
            *at = (*at + 1) % frames.len();
        }
        Ok(())
    }

    fn release(&mut self) {}

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
        0
    }

    fn counts(&mut self) -> SourceCounts {
        SourceCounts::default()
    }
}

const ALL: Wants = Wants {
    snaplen: 262_144,
    sent: true,
};

const SIZE_OF_POOL: PoolSize = PoolSize {
    lanes: 1,
    block_len: 1 << 20,
    blocks: 63,
};

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).map(|it| it.parse::<u64>());
    let mut number = |otherwise| numbers.next().unwrap_or(Ok(otherwise));
    let (len, members, seconds) = (number(60)?, number(1)?, number(2)?);
    let description = Description {
        flows: 4096,
        lengths: Lengths::Fixed(u16::try_from(len)?),
        ..Description::default()
    };
    let frames = description.pool()?;
    let frames = (0..4096).map(|it| frames.frame(it)).collect();
    let slots: Vec<u8> = (0..u8::try_from(members)?).collect();
    let mut fan_out = FanOut::new(0);
    fan_out.begin(0, group(&slots)?);
    let mut pools = Vec::new();
    for &slot in &slots {
        let (file, mut lanes) = PoolFile::create(PoolKind::File, SIZE_OF_POOL)?;
        let writer = lanes.pop().context("a lane")?;
        let admitted = fan_out.admit(MemberSlot { group: 0, slot }, writer, ALL);
        ensure!(admitted.is_ok(), "no such group");
        let clocks = PoolClocks {
            now: monotonic_ns,
            offset: realtime_offset_ns,
        };
        pools.push(Pool::new(file.map()?, 1, clocks));
    }
    let is_over = AtomicBool::new(false);
    let (poller_ns, read, reader_ns) = thread::scope(|scope| {
        let reader = scope.spawn(|| read(&mut pools, &is_over));
        let mut source = Endless { frames, at: 0 };
        let polled = poll(&mut fan_out, &mut source, seconds);
        is_over.store(true, Ordering::Relaxed);
        let (read, reader_ns) = reader.join().ok().context("the reader")??;
        anyhow::Ok((polled?, read, reader_ns))
    })?;
    let counts = fan_out.counts(0).context("a group")?;
    let each = |ns: u64, packets: u64| ns as f64 / packets.max(1) as f64;
    println!(
        "{len} B, {members} members: poller {:.1} ns, reader {:.1} ns a packet; {:.1} million \
         packets, {:.3} % dropped, {:.0} % of the CPU",
        each(poller_ns, counts.offered),
        each(reader_ns, read),
        counts.offered as f64 / 1e6,
        100.0 * counts.dropped as f64 / counts.offered as f64,
        poller_ns as f64 / seconds as f64 / 1e7,
    );
    Ok(())
}

fn group(slots: &[u8]) -> Result<NewGroup> {
    let table = Arc::new(sealed::create_memory(c"table", u32::try_from(SIZE)?)?);
    let share = |&slot: &u8| Share {
        slot: Slot(slot),
        weight: 1,
    };
    let shares: Vec<Share> = slots.iter().map(share).collect();
    for step in plan(&[None; BUCKETS], &shares) {
        table.bytes()[OWNERS + step.bucket].store(step.to.0, Ordering::Relaxed);
    }
    for &slot in slots {
        table.bytes()[RANKS + usize::from(slot)].store(slot, Ordering::Relaxed);
    }
    let count = table.view::<AtomicU32>(RANK_COUNT, 1).context("a table")?;
    count[0].store(u32::try_from(slots.len())?, Ordering::Relaxed);
    let source = fanpcap_steer::modes::source("flow").context("a mode")?;
    let tree = fanpcap_steer::tree(source, &|_| Err(String::new()))?;
    Ok(NewGroup {
        steering: Evaluator::of_group(&tree),
        table,
        options: GroupOptions::default(),
        user: 0,
        filter: None,
    })
}

/// Polls for some seconds. Returns the CPU time.
fn poll(fan_out: &mut FanOut, source: &mut dyn Source, seconds: u64) -> Result<u64> {
    pin(0)?;
    let begin = thread_cpu_ns();
    let end = monotonic_ns() + seconds * 1_000_000_000;
    loop {
        let now_ns = monotonic_ns();
        if now_ns >= end {
            return Ok(thread_cpu_ns() - begin);
        }
        fan_out.poll(source, now_ns, &mut |_| {})?;
    }
}

/// Reads the pools until the end. Returns the number of packets, and the CPU time of reading them.
fn read(pools: &mut [Pool], is_over: &AtomicBool) -> Result<(u64, u64)> {
    pin(1)?;
    let (mut packets, mut busy_ns) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        for pool in &mut *pools {
            // Reads as a reader that rests: a megabyte has come.
            if pool.unread() < 256 << 10 {
                continue;
            }
            let begin = thread_cpu_ns();
            pool.open();
            while let Some(frame) = pool.next_frame()? {
                packets += u64::from(frame.captured() > 0);
            }
            pool.release();
            busy_ns += thread_cpu_ns() - begin;
        }
    }
    Ok((packets, busy_ns))
}
