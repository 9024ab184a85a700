//! How soon a new handle gets its first packet, and the size of the library.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::latency::micros;
use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::Load;
use crate::libraries::Side;
use crate::pause::pause;
use crate::reader::{self, Settings, Times, Work};

const OPENS: u32 = 15;
/// The interval of probes. The interval is short, so that a handle never waits for a packet.
const OPEN_INTERVAL: Duration = Duration::from_micros(200);
/// More probes than all handles need: to send them takes 10 s. The generator is stopped when the
/// reader has ended.
const OPEN_PROBES: u64 = 50_000;
/// Time until the first probes arrive.
const SETTLE: Duration = Duration::from_millis(150);

/// Times of opening and closing handles: medians over the handles that one reader opens.
pub(super) fn open(settings: Settings, bench: &Bench, side: Side) -> Result<Sample> {
    let ended = bench.arranged(side, bench.way, || {
        let generator = bench.start_generator(Load::Probes(OPEN_PROBES, OPEN_INTERVAL), None)?;
        pause(SETTLE)?;
        let ended = bench.read(side, settings, Work::Open(OPENS))?.wait()?;
        drop(generator);
        Ok(ended)
    })?;
    let told = reader::told(&ended, side, bench.libraries())?;
    let median = |times: Option<Times>| {
        times
            .map(|times| micros(times.p50))
            .context("no handle was opened")
    };
    let (open, close) = (median(told.open_ns)?, median(told.close_ns)?);
    Ok(Sample::from([
        (Figure::OpenUs, open),
        (Figure::FirstUs, median(told.first_ns)?),
        (Figure::CloseUs, close),
        (Figure::OpenCloseUs, open + close),
    ]))
}

/// The size of our library's file.
pub(super) fn size(bench: &Bench) -> Result<Sample> {
    let file = bench.library().join("libpcap.so.0.8");
    let length = fs::metadata(&file)
        .with_context(|| format!("the size of {}", file.display()))?
        .len();
    Ok(Sample::from([(Figure::SizeMb, length as f64 / 1e6)]))
}
