//! A measure of single packets at an interval: their age in the callback.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::Load;
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::reader::{Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::trial::Trial;

/// The age of single packets.
#[derive(Debug)]
pub(super) struct Latency {
    /// Text before the settings in the measure's name.
    pub(super) what: &'static str,
    pub(super) settings: Settings,
    /// How the readers wait.
    pub(super) work: Work,
    pub(super) columns: &'static [Column],
    pub(super) probes: u64,
    pub(super) interval: Duration,
}

impl Measure for Latency {
    fn name(&self) -> String {
        format!("single packets, {}{}", self.what, self.settings.name())
    }

    fn columns(&self) -> &[Column] {
        self.columns
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let trial = Trial {
            side: Side::of(column.key),
            settings: self.settings,
            work: self.work,
            seats: &[Seat::ALONE],
            load: Load::Probes(self.probes, self.interval),
        };
        let done = match trial.run(bench)? {
            Ok(done) => done,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let times = done.told.iter().find_map(|told| told.latency_ns);
        let times = times.context("no probe reached the reader")?;
        ensure!(
            times.count == done.sent.frames,
            "{} of {} probes were timed",
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
