//! Single packets at their times: how old they get on their way, and how soon a new handle has its
//! first one.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bench::Bench;
use crate::cores::Cores;
use crate::figure::{Figure, Sample};
use crate::flood;
use crate::generator::Load;
use crate::reader::{self, Settings, Side, Times, Work};
use crate::refusal::Refusal;

const PROBES: u64 = 500;
const INTERVAL: Duration = Duration::from_millis(2);

const OPENS: u32 = 15;
/// So close together that the packet waits for the handle, not the handle for the packet.
const OPEN_INTERVAL: Duration = Duration::from_micros(200);
/// More than all handles need, for 10 s: the generator is stopped when the reader has ended.
const OPEN_PROBES: u64 = 50_000;
/// Until the first of them have come.
const SETTLE: Duration = Duration::from_millis(150);

/// The age of packets that come one by one, on one side; or why the run does not count.
pub(crate) fn latency(
    bench: &Bench,
    settings: Settings,
    side: Side,
) -> Result<Result<Sample, Refusal>> {
    let before = bench.arrived()?;
    let member = bench.read(side, settings, Work::Time)?;
    let cores = Cores::watch(bench, &member)?;
    let sent = bench.generate(Load::Probes(PROBES, INTERVAL))?;
    let undisturbed = cores.undisturbed(&sent, &member, true)?;
    let (told, counters) = flood::finish(bench, member, side, before, &sent)?;
    if let Err(refusal) = counters.agree().and(undisturbed) {
        return Ok(Err(refusal));
    }
    let times = told.latency_ns.context("no probe reached the reader")?;
    ensure!(
        times.count == sent.frames,
        "{} of {} probes were timed",
        times.count,
        sent.frames
    );
    Ok(Ok(Sample::from([
        (Figure::LatencyP50Us, micros(times.p50)),
        (Figure::LatencyP99Us, micros(times.p99)),
    ])))
}

/// How long handles take, on one side. The medians of one reader's handles count.
pub(crate) fn open(bench: &Bench, settings: Settings, side: Side) -> Result<Sample> {
    let generator = bench.start_generator(Load::Probes(OPEN_PROBES, OPEN_INTERVAL))?;
    thread::sleep(SETTLE);
    let ended = bench.read(side, settings, Work::Open(OPENS))?.wait()?;
    drop(generator);
    let told = reader::told(&ended, side)?;
    let median = |times: Option<Times>| {
        times
            .map(|times| micros(times.p50))
            .context("no handle was opened")
    };
    Ok(Sample::from([
        (Figure::OpenUs, median(told.open_ns)?),
        (Figure::FirstUs, median(told.first_ns)?),
        (Figure::CloseUs, median(told.close_ns)?),
    ]))
}

fn micros(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e3
}
