//! The packets of a queue keep their order while the queue moves between CPUs.

use std::env;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process::{child, cpu};
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_nic::device::Device;
use fanpcap_nic::napi;

use crate::changes::set_queues;
use crate::numbered::{Reader, numbered};

/// The time between two changes, the number of changes for each number of queues, and the time for
/// which the reader is stopped during a change.
const EVERY: Duration = Duration::from_millis(20);
const CHANGES: usize = 50;
const STOP: Duration = Duration::from_millis(2);

/// Frames a second of each sender.
const RATE: &str = "400kpps";

/// The device has one queue and two queues in turn. Fifty times a second, its queues are polled by
/// other CPUs: by threads, which the scheduler may move, by threads on one CPU, or in interrupts on
/// the sender's CPU, which changes if there is only one queue. Each sender's packets come by one
/// queue. The reader is stopped during each change, because it may then be between two CPUs' lanes.
/// `how` says how it reads.
fn keep_order(packets: u64, how: &str) -> Result<()> {
    let cpus = cpu::cpus()?;
    if cpus.len() < 2 {
        println!("SKIP: there is only one CPU");
        return Ok(());
    }
    on_wire(2, |wire| {
        let reader = Reader::start(wire, how)?;
        let mut sent = 0;
        for part in 0_u8.. {
            let queues = 1 + usize::from(part % 2);
            set_queues(queues, queues == 2)?;
            sent += send_and_move(part, queues, &cpus, &reader)?;
            if sent >= packets && part > 0 {
                break;
            }
        }
        let read = reader.stop()?;
        println!("{sent} sent: {read:?}");
        ensure!(read.breaks == 0, "{read:?}");
        ensure!(read.packets >= sent / 10, "{read:?} of {sent}");
        ensure!(read.packets + read.dropped == read.received, "{read:?}");
        Ok(())
    })
}

/// Sends to each of the device's queues for [`CHANGES`] changes. Returns how many frames were sent.
fn send_and_move(part: u8, queues: usize, cpus: &[usize], reader: &Reader) -> Result<u64> {
    let device = Device::open(DEVICE)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let start = |index: usize| {
            scope.spawn(move || {
                // The sender's CPU selects the queue.
                cpu::pin(cpus[index])?;
                let mover = (queues == 1).then(own_thread).transpose()?;
                let from = [part, u8::try_from(index)?];
                thread::scope(|inner| {
                    inner.spawn(|| move_sender(mover, cpus, is_over));
                    numbered(from, 60, RATE, None, is_over)
                })
            })
        };
        let senders: Vec<_> = (0..queues).map(start).collect();
        let moved = (0..CHANGES).try_for_each(|step| {
            thread::sleep(EVERY);
            child::signal(reader.0.pid(), child::SIGSTOP)?;
            thread::sleep(STOP);
            let moved = move_queues(&device, queues, step, cpus);
            thread::sleep(STOP);
            child::signal(reader.0.pid(), child::SIGCONT)?;
            moved
        });
        is_over.store(true, Ordering::Relaxed);
        let join = |it: thread::ScopedJoinHandle<'_, Result<u64>>| {
            it.join().expect("a sender does not panic")
        };
        let sent = senders.into_iter().map(join).sum::<Result<u64>>();
        moved.and(sent)
    })
}

/// Moves a sender to another CPU again and again.
fn move_sender(thread: Option<u32>, cpus: &[usize], is_over: &AtomicBool) {
    let Some(thread) = thread else {
        return;
    };
    for cpu in cpus.iter().cycle() {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        // Ignore errors: the sender may have ended.
        let _ = cpu::set_affinity(thread, &[*cpu]);
        thread::sleep(EVERY / 4);
    }
}

/// Lets other CPUs poll the device's queues.
fn move_queues(device: &Device, queues: usize, step: usize, cpus: &[usize]) -> Result<()> {
    let is_threaded = step % 5 != 4;
    napi::set_threaded(device, is_threaded)?;
    let allowed = match step % 5 {
        1 => &cpus[..1],
        2 => &cpus[1..2],
        _ => cpus,
    };
    if is_threaded {
        for queue in 0..u32::try_from(queues)? {
            napi::set_affinity(device, queue, allowed)?;
        }
    }
    Ok(())
}

/// The number of the calling thread.
fn own_thread() -> Result<u32> {
    let path = fs::read_link("/proc/thread-self")?;
    let name = path.file_name().and_then(|name| name.to_str());
    Ok(name.context("a thread")?.parse()?)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_reader_that_waits_has_packets_in_order_while_their_queue_moves() -> Result<()> {
    keep_order(1_000_000, "waits")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_reader_that_polls_has_packets_in_order_while_their_queue_moves() -> Result<()> {
    keep_order(1_000_000, "polls")
}

/// Tests that last too long for the usual runs.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: run by make test"]
    fn many_packets_come_in_order_while_their_queue_moves() -> Result<()> {
        let packets = env::var("FANPCAP_PACKETS").ok();
        let packets = packets.map_or(Ok(100_000_000), |text| text.parse());
        keep_order(packets?, "polls")
    }
}
