//! The measure of most rows: frames of one length, and for each column what receives them.

use anyhow::Result;

use super::unread::{self, no_live_frames};
use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::{Load, Way};
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::reader::{Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::trial::{Done, Trial};
use crate::verdict::Verdict;

/// A run for each column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trials {
    /// Frame length.
    pub(super) len: usize,
    /// Text after the length in the measure's name.
    pub(super) what: &'static str,
    pub(super) columns: &'static [Column],
    /// What receives the frames of a column, by its key.
    pub(super) receivers: fn(&'static str) -> Receivers,
    /// Frames per second; all that the generator can send if 0.
    pub(super) pps: u64,
    /// How the frames are sent, if not as the bench sends most.
    pub(super) way: Option<Way>,
    /// The run's length in those of others: there may be many columns, and what the rings hold at
    /// the end of paced runs is to be a small part.
    pub(super) lengths: f64,
    /// Figures in the table; all if empty. The captured share is that of paced runs, and of those
    /// that show it.
    pub(super) shown: &'static [Figure],
}

/// A flood for each column.
pub(super) const FLOODS: Trials = Trials {
    len: 0,
    what: "",
    columns: &[],
    receivers: |key| alone(key, Settings::DEFAULT),
    pps: 0,
    way: None,
    lengths: 1.0,
    shown: &[],
};

/// What receives frames.
#[derive(Debug)]
pub(super) enum Receivers {
    /// A reader on each seat.
    Readers(Side, Settings, Work, Vec<Seat>),
    /// A BPF program of the bench.
    Program(Verdict),
    /// The generator is alone.
    Nothing,
}

/// A reader that counts, on the library of the column with this key.
pub(super) fn alone(key: &str, settings: Settings) -> Receivers {
    Receivers::Readers(Side::of(key), settings, Work::Count, vec![Seat::ALONE])
}

/// Readers that count, with default settings.
pub(super) fn counting(side: Side, seats: Vec<Seat>) -> Receivers {
    Receivers::Readers(side, Settings::DEFAULT, Work::Count, seats)
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
        let from = match self.way {
            Some(Way::Sendmmsg) => ", from skbs",
            _ => "",
        };
        format!("{} bytes, {}{from}", self.len, self.what)
    }

    fn columns(&self) -> &[Column] {
        self.columns
    }

    fn absent(&self, bench: &Bench, _column: &Column) -> Result<Option<String>> {
        Ok(match self.way {
            Some(Way::LiveFrames) => no_live_frames(bench),
            _ => None,
        })
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let time = bench.time.mul_f64(self.lengths);
        let (side, settings, work, seats) = match (self.receivers)(column.key) {
            Receivers::Readers(side, settings, work, seats) => (side, settings, work, seats),
            Receivers::Program(verdict) => return unread::flood(bench, Some(verdict), time),
            Receivers::Nothing => return unread::flood(bench, None, time),
        };
        let way = self.way.unwrap_or(bench.way);
        let (len, pps) = (self.len, self.pps);
        let load = match pps {
            0 => Load::Flood(len, way, time),
            _ => Load::Paced {
                len,
                pps,
                way,
                time,
            },
        };
        let trial = Trial {
            side,
            settings,
            work,
            seats: &seats,
            load,
        };
        let with_share = pps > 0 || self.shown.contains(&Figure::CapturedShare);
        let sample = if with_share {
            Done::sample_with_share
        } else {
            Done::sample
        };
        Ok(trial.run(bench)?.map(|done| sample(&done)))
    }

    fn shown(&self) -> &[Figure] {
        self.shown
    }
}
