//! Rows with one reader on each library and a flood.

use anyhow::Result;

use super::SIDES;
use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::frame::SHORTEST;
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::reader::{Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::row::{Goal, Must, Row};
use crate::trial::Trial;

/// A counting reader on our library and on the system's.
#[derive(Debug)]
pub(super) struct Flood {
    pub(super) len: usize,
    pub(super) settings: Settings,
}

impl Measure for Flood {
    fn name(&self) -> String {
        format!("{} bytes, {}", self.len, self.settings.name())
    }

    fn columns(&self) -> &[Column] {
        &SIDES
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let trial = Trial {
            side: Side::of(column.key),
            settings: self.settings,
            work: Work::Count,
            seats: &[Seat::ALONE],
            load: bench.flood(self.len),
        };
        Ok(trial.run(bench)?.map(|done| done.sample()))
    }
}

static SHORT_FRAMES: Flood = Flood {
    len: SHORTEST,
    settings: Settings::DEFAULT,
};
static LONG_FRAMES: Flood = Flood {
    len: 1496,
    settings: Settings {
        snaplen: Some(96),
        ..Settings::DEFAULT
    },
};

pub(super) const TPACKET: Row = Row {
    name: "tpacket",
    what: "captured packets, 60 bytes, default settings",
    goals: &[Goal::ratio(
        "captured packets/s, ratio",
        &SHORT_FRAMES,
        Figure::CapturedPps,
        Must::Parity(0.97),
    )],
    published: &[],
};

pub(super) const TPACKET_CPU: Row = Row {
    name: "tpacket-cpu",
    what: "the reader's CPU time, 60 bytes, default settings",
    goals: &[Goal::ratio(
        "reader CPU per packet, ratio",
        &SHORT_FRAMES,
        Figure::ReaderNs,
        Must::AtMost(0.5),
    )],
    published: &[],
};

pub(super) const SNAPLEN: Row = Row {
    name: "snaplen",
    what: "snaplen 96 at 1496 bytes, no filter",
    goals: &[
        Goal::ratio(
            "reader CPU per packet, ratio",
            &LONG_FRAMES,
            Figure::ReaderNs,
            Must::AtMost(0.15),
        ),
        Goal::ratio(
            "captured packets/s, ratio",
            &LONG_FRAMES,
            Figure::CapturedPps,
            Must::AtLeast(1.0),
        ),
    ],
    published: &[],
};
