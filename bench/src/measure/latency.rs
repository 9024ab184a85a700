//! A measure of single packets at an interval: their age in the callback.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::Load;
use crate::libraries::Side;
use crate::reader::{Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::trial::Trial;

/// The age of single packets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub(super) struct Latency {
    settings: Settings,
    /// How the readers wait.
    work: Work,
    probes: u64,
    /// The interval.
    microseconds: u64,
}

impl Latency {
    pub(super) fn run(&self, bench: &Bench, side: Side) -> Result<Result<Sample, Refusal>> {
        let trial = Trial {
            side,
            settings: self.settings,
            work: self.work,
            seats: &[Seat::ALONE],
            load: Load::Probes(self.probes, Duration::from_micros(self.microseconds)),
        };
        let done = match trial.run(bench)? {
            Ok(done) => done,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let times = done.told.iter().find_map(|told| told.latency_ns);
        let times = times.context("no probe reached the reader")?;
        ensure!(
            times.count == done.sent.frames,
            "the reader got {} of {} probes",
            times.count,
            done.sent.frames
        );
        Ok(Ok(Sample::from([
            (Figure::LatencyP50Us, micros(times.p50)),
            (Figure::LatencyP99Us, micros(times.p99)),
            (Figure::LatencyMaxUs, micros(times.max)),
        ])))
    }
}

pub(super) fn micros(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e3
}
