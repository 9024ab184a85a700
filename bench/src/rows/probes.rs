//! Single packets at an interval: their age in immediate mode, and how soon a new handle gets its
//! first packet.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use super::SIDES;
use super::flood::SHORT_FRAMES;
use super::latency::{Latency, micros};
use super::trials::{Trials, alone};
use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::Load;
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::pause::pause;
use crate::reader::{self, Settings, Times, Work};
use crate::refusal::Refusal;
use crate::row::{Goal, Must, Row};

const OPENS: u32 = 15;
/// A short interval: the packet must wait for the handle, not the handle for the packet.
const OPEN_INTERVAL: Duration = Duration::from_micros(200);
/// More than all handles need, for 10 s: the generator is stopped when the reader has ended.
const OPEN_PROBES: u64 = 50_000;
/// Time until the first probes arrive.
const SETTLE: Duration = Duration::from_millis(150);

/// Times of opening and closing handles. The medians over one reader's handles count.
#[derive(Debug)]
struct Open(Settings);

impl Measure for Open {
    fn name(&self) -> String {
        format!("opening, {}", self.0.name())
    }

    fn columns(&self) -> &[Column] {
        &SIDES
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let side = Side::of(column.key);
        let ended = bench.arranged(side, bench.way, || {
            let generator = bench.start_generator(Load::Probes(OPEN_PROBES, OPEN_INTERVAL))?;
            pause(SETTLE)?;
            let ended = bench.read(side, self.0, Work::Open(OPENS))?.wait()?;
            drop(generator);
            Ok(ended)
        })?;
        let told = reader::told(&ended, side, bench.library())?;
        let median = |times: Option<Times>| {
            times
                .map(|times| micros(times.p50))
                .context("no handle was opened")
        };
        Ok(Ok(Sample::from([
            (Figure::OpenUs, median(told.open_ns)?),
            (Figure::FirstUs, median(told.first_ns)?),
            (Figure::CloseUs, median(told.close_ns)?),
        ])))
    }
}

/// The size of our library's file.
#[derive(Debug)]
struct Size;

impl Measure for Size {
    fn name(&self) -> String {
        "the library".to_owned()
    }

    fn columns(&self) -> &[Column] {
        &SIDES[..1]
    }

    fn run(&self, bench: &Bench, _column: &Column) -> Result<Result<Sample, Refusal>> {
        let file = bench.library().join("libpcap.so.0.8");
        let length = fs::metadata(&file)
            .with_context(|| format!("the size of {}", file.display()))?
            .len();
        Ok(Ok(Sample::from([(Figure::SizeMb, length as f64 / 1e6)])))
    }

    fn constant(&self) -> bool {
        true
    }
}

const IMMEDIATELY: Settings = Settings {
    immediate: true,
    ..Settings::DEFAULT
};
/// A short timeout, so that the first packet is handed over soon.
const SOON: Settings = Settings {
    timeout: Some(1),
    ..Settings::DEFAULT
};

const FLOOD: Trials = Trials {
    what: "immediate mode",
    receivers: |key| alone(key, IMMEDIATELY),
    ..SHORT_FRAMES
};
static LATENCY: Latency = Latency {
    what: "",
    settings: IMMEDIATELY,
    work: Work::Time,
    columns: &SIDES,
    probes: 500,
    interval: Duration::from_millis(2),
};
static OPENING: Open = Open(SOON);
static OPENING_WITH_FILTER: Open = Open(Settings {
    filter: Some("udp"),
    ..SOON
});
static SIZE: Size = Size;

pub(super) const IMMEDIATE: Row = Row {
    name: "immediate",
    what: "immediate mode: 60 bytes, and single packets every 2 ms",
    goals: &[
        Goal::ratio(
            "captured packets/s, ratio",
            &FLOOD,
            Figure::CapturedPps,
            Must::AtLeast(1.4),
        ),
        Goal::ratio(
            "latency p99, difference in us",
            &LATENCY,
            Figure::LatencyP99Us,
            Must::AtMost(1000.0),
        )
        .difference(),
    ],
    published: &[],
};

pub(super) const OPEN: Row = Row {
    name: "open",
    what: "pcap_open_live to the first packet, and the library's size",
    goals: &[
        Goal::ratio(
            "open to first packet, ratio",
            &OPENING,
            Figure::FirstUs,
            Must::AtMost(1.3),
        ),
        Goal::ratio(
            "the same with a filter, ratio",
            &OPENING_WITH_FILTER,
            Figure::FirstUs,
            Must::AtMost(2.0),
        ),
        Goal::ratio(
            "size of the library, MB",
            &SIZE,
            Figure::SizeMb,
            Must::AtMost(1.5),
        )
        .alone("ours"),
    ],
    published: &[],
};
