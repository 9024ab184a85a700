//! The generator process's work: floods, frames at a rate, or single probes.

use std::hint;
use std::num::NonZeroU64;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_gen::{Choice, Pace, Plan, Rate, Sender, Until};
use fanpcap_linux::packet::inject::Injector;
use fanpcap_linux::wait::clock;

use super::{Launch, Sent, Way, frame};
use crate::cpu;

/// Frames in a burst of a paced load. With shorter bursts, the generator would take more time of a
/// core that it shares with a reader.
const BURST: u64 = 64;

pub(super) fn frames(
    launch: &Launch,
    len: usize,
    (pps, way, time): (Option<NonZeroU64>, Way, Duration),
) -> Result<Sent> {
    let choice = match way {
        Way::Sendmmsg => Choice::Portable,
        // The sender need not watch for drops: the bench counts the frames that arrive at the other
        // end.
        Way::LiveFrames => Choice::Unwatched,
    };
    let pace = match pps {
        Some(rate) => Pace::Bursts(Rate::Frames(rate), BURST * 1_000_000_000 / rate.get()),
        None => Pace::Top,
    };
    let plan = Plan {
        until: Until::Elapsed(time),
        pace,
    };
    let pool = frame::pool(len)?;
    let mut sender = Sender::open(&launch.device, pool, choice).context("opening the generator")?;
    if let Some(at) = launch.at {
        clock::sleep_until(at);
    }
    let reader_time = || launch.reader.map(cpu::of_all_threads).transpose();
    let before = reader_time()?;
    let begin = clock::monotonic_ns();
    let sent = sender
        .send(&plan, &AtomicBool::new(false))
        .context("sending")?;
    let after = reader_time()?;
    Ok(Sent {
        frames: sent.frames,
        begin,
        nanoseconds: sent.nanoseconds,
        cpu_ns: sent.cpu_ns,
        process_cpu_ns: whole(own_cpu()?),
        reader_ns: before.map(whole).zip(after.map(whole)),
    })
}

/// Sends single frames, each up to a quarter of the interval early or late, so that the frames do
/// not stay in phase with a timer of the kernel.
pub(super) fn probes(device: &str, count: u64, interval: Duration) -> Result<Sent> {
    let mut probe = frame::single()?;
    let injector = Injector::open_bypass(device).context("opening a packet socket")?;
    let (begin, start) = (clock::monotonic_ns(), Instant::now());
    for number in 0..count {
        let due = interval.mul_f64(number as f64 + jitter(number));
        wait_for(start + due, interval);
        frame::stamp(&mut probe);
        injector.send(&probe).context("sending a probe")?;
    }
    let nanoseconds = whole(start.elapsed());
    let cpu_ns = whole(own_cpu()?);
    Ok(Sent {
        frames: count,
        begin,
        nanoseconds,
        cpu_ns,
        process_cpu_ns: cpu_ns,
        reader_ns: None,
    })
}

/// Waits until `due`. If the interval is long enough, sleeps at first, then spins; in a short
/// interval only spins, because a sleep would end too late.
fn wait_for(due: Instant, interval: Duration) {
    if interval >= ASLEEP {
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    while Instant::now() < due {
        hint::spin_loop();
    }
}

/// The shortest interval in which the generator sleeps. In shorter intervals it spins.
const ASLEEP: Duration = Duration::from_micros(200);

/// A number between 0 and 1/2. A multiplicative hash scatters consecutive numbers well (Knuth,
/// 6.4).
fn jitter(number: u64) -> f64 {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    scattered as f64 / f64::from(u32::MAX) / 2.0
}

/// The CPU time of this thread. The kernel updates this time when the thread leaves its CPU.
fn own_cpu() -> Result<Duration> {
    thread::sleep(Duration::from_micros(1));
    cpu::of_this_thread()
}

fn whole(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
