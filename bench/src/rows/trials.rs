//! A measure whose columns are trials on our library, each with readers on other seats.

use anyhow::Result;

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::Load;
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::reader::{Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::trial::Trial;

/// A trial for each column, in a flood and with default settings.
#[derive(Debug)]
pub(super) struct Trials {
    /// Of each frame.
    pub(super) len: usize,
    /// For people, behind the length.
    pub(super) what: &'static str,
    pub(super) columns: &'static [Column],
    /// There may be many, so that each is short: by how much.
    pub(super) shorter: u32,
    /// Where a column's readers sit, by its key.
    pub(super) seats: fn(&'static str) -> Vec<Seat>,
    /// What a column's readers run on and do, by its key.
    pub(super) reads: fn(&'static str) -> (Side, Work),
    /// What the table shows; all but the captured share, if nothing is named.
    pub(super) shown: &'static [Figure],
}

/// Readers on ours that count.
pub(super) fn counting(_key: &'static str) -> (Side, Work) {
    (Side::Ours, Work::Count)
}

/// What readers capture, and what that costs.
pub(super) const CAPTURED: [Figure; 4] = [
    Figure::CapturedPps,
    Figure::CapturedShare,
    Figure::ReaderNs,
    Figure::GeneratorNs,
];

impl Measure for Trials {
    fn name(&self) -> String {
        format!("{} bytes, {}", self.len, self.what)
    }

    fn columns(&self) -> &[Column] {
        self.columns
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let (side, work) = (self.reads)(column.key);
        let trial = Trial {
            side,
            settings: Settings::DEFAULT,
            work,
            seats: &(self.seats)(column.key),
            load: Load::Flood(self.len, bench.way, bench.time / self.shorter),
        };
        let done = trial.run(bench)?;
        Ok(done.map(|done| match self.shown {
            [] => done.sample(),
            _ => done.sample_with_share(),
        }))
    }

    fn shown(&self) -> &[Figure] {
        self.shown
    }
}
