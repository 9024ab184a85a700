//! The ways to send: live frames of eBPF test runs, sendmmsg, single probes.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_linux::bpf::{Hook, Number, Program};
use fanpcap_linux::interface;
use fanpcap_testkit::Injector;

use super::{Sent, Traffic, frame, program};
use crate::cpu;

/// Frames to one test run: its set-up costs some 15 us, so many share it. The clock is read between
/// runs.
const RUN: u32 = 16384;

/// As many frames as [`Injector::send_all`] gives to one system call.
const BATCH: usize = 64;

pub(super) fn live(traffic: &Traffic, time: Duration) -> Result<Sent> {
    let template = frame::template(traffic.len)?;
    let ifindex = interface::index(&traffic.device).context("no such device")?;
    let number = Number::new("number").context("making an eBPF map")?;
    let sender = Program::load("send", &program::send(&template, ifindex, &number))?;
    // A program that no device has is entered into the XDP dispatcher for each run and removed after
    // it, and each time the kernel waits for all readers of the old one: tens of ms.
    let loopback = interface::index("lo").context("no lo here")?;
    let _attached = sender
        .attach(loopback, Hook::Generic)
        .context("attaching to lo")?;

    let sent = timed(time, || {
        sender
            .run_live(&template, RUN)
            .context("sending live frames")?;
        Ok(u64::from(RUN))
    })?;
    let made = number.get()?;
    ensure!(
        made == sent.frames,
        "the program made {made} frames instead of {}",
        sent.frames
    );
    Ok(sent)
}

pub(super) fn by_sendmmsg(traffic: &Traffic, time: Duration) -> Result<Sent> {
    let template = frame::template(traffic.len)?;
    let injector = Injector::open_bypass(&traffic.device).context("opening a packet socket")?;
    let numbered = |number| {
        let mut frame = template.clone();
        frame::number(&mut frame, number);
        frame
    };
    let frames: Vec<_> = (0..frame::FLOWS).map(numbered).collect();
    let mut batches = frames.chunks(BATCH).cycle();
    timed(time, || {
        let batch = batches.next().context("no frames")?;
        injector.send_all(batch).context("sending")?;
        Ok(batch.len() as u64)
    })
}

/// Single frames at their times, give or take a quarter of the interval, so that they don't march in
/// step with a timer of the kernel.
pub(super) fn probes(traffic: &Traffic, count: u64) -> Result<Sent> {
    let mut probe = frame::template(traffic.len)?;
    let injector = Injector::open_bypass(&traffic.device).context("opening a packet socket")?;
    let interval = Duration::from_micros(traffic.interval);
    let start = Instant::now();
    for number in 0..count {
        let due = interval.mul_f64(number as f64 + jitter(number));
        thread::sleep(due.saturating_sub(start.elapsed()));
        frame::stamp(&mut probe);
        injector.send(&probe).context("sending a probe")?;
    }
    account(count, start, Duration::ZERO)
}

/// Between 0 and 1/2; a multiplicative hash scatters consecutive numbers well (Knuth, 6.4).
fn jitter(number: u64) -> f64 {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    scattered as f64 / f64::from(u32::MAX) / 2.0
}

/// Repeats `send`, which says how many frames it sent, until the time is over.
fn timed(time: Duration, mut send: impl FnMut() -> Result<u64>) -> Result<Sent> {
    let before = own_cpu()?;
    let start = Instant::now();
    let mut frames = 0;
    while start.elapsed() < time {
        frames += send()?;
    }
    account(frames, start, before)
}

fn account(frames: u64, start: Instant, before: Duration) -> Result<Sent> {
    let nanoseconds = whole(start.elapsed());
    let cpu = own_cpu()?;
    Ok(Sent {
        frames,
        nanoseconds,
        cpu_ns: whole(cpu.saturating_sub(before)),
        process_cpu_ns: whole(cpu),
    })
}

/// The kernel adds up a thread's time when it leaves its CPU.
fn own_cpu() -> Result<Duration> {
    thread::sleep(Duration::from_micros(1));
    cpu::of_this_thread()
}

fn whole(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
