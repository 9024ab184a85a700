//! A measure whose columns are trials on our library, with readers on different seats.

use anyhow::Result;

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::Load;
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::reader::{Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::trial::Trial;

/// A trial for each column, with a flood and default settings.
#[derive(Debug)]
pub(super) struct Trials {
    /// Frame length.
    pub(super) len: usize,
    /// Text after the length in the measure's name.
    pub(super) what: &'static str,
    pub(super) columns: &'static [Column],
    /// Divisor of the run length: there may be many columns.
    pub(super) shorter: u32,
    /// The seats of a column's readers, by its key.
    pub(super) seats: fn(&'static str) -> Vec<Seat>,
    /// Library and work of a column's readers, by its key.
    pub(super) reads: fn(&'static str) -> (Side, Work),
    /// Figures in the table; if empty, all except the captured share.
    pub(super) shown: &'static [Figure],
}

/// Counting readers on our library.
pub(super) fn counting(_key: &'static str) -> (Side, Work) {
    (Side::Ours, Work::Count)
}

/// Packets that readers capture, and the cost.
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
