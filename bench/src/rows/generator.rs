//! The generator into a device that drops everything, compared with the generator alone.

use anyhow::Result;

use super::unread::{self, no_live_frames};
use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::frame::SHORTEST;
use crate::measure::{Column, Measure};
use crate::refusal::Refusal;
use crate::row::{Goal, Must, Row};
use crate::verdict::Verdict;

/// Floods without readers.
#[derive(Debug)]
struct Generator;

const COLUMNS: [Column; 2] = [
    Column::new("drop", "into XDP_DROP"),
    Column::new("alone", "alone"),
];

impl Measure for Generator {
    fn name(&self) -> String {
        format!("{SHORTEST} bytes, no reader")
    }

    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn absent(&self, bench: &Bench, _column: &Column) -> Result<Option<String>> {
        Ok(no_live_frames(bench))
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let drops = (column.key == "drop").then_some(Verdict::Drop);
        unread::flood(bench, drops, bench.time)
    }

    fn shown(&self) -> &[Figure] {
        &[
            Figure::Sent,
            Figure::LinkReceived,
            Figure::SentPps,
            Figure::GeneratorNs,
        ]
    }
}

static GENERATOR: Generator = Generator;

pub(super) const GEN: Row = Row {
    name: "gen",
    what: "the generator into a device that drops all frames, against what it makes alone",
    goals: &[Goal::ratio(
        "frames/s into XDP_DROP, ratio to alone",
        &GENERATOR,
        Figure::SentPps,
        Must::AtLeast(0.4),
    )
    .between("drop", "alone")],
    published: &[],
};
