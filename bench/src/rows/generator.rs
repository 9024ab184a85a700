//! The generator into a device that drops everything, compared with the generator alone.

use anyhow::Result;

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::Way;
use crate::generator::frame::SHORTEST;
use crate::measure::{Column, Measure};
use crate::refusal::{Refusal, generator_share, into_nothing};
use crate::row::{Goal, Must, Row};
use crate::wire::Verdict;

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
        let frames = bench.way == Way::LiveFrames;
        Ok((!frames).then(|| "live frames don't work here".to_owned()))
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        // A device without an XDP program refuses live frames: that column is the generator alone.
        let drops = column.key == "drop";
        if drops {
            bench.wire.take_frames(Verdict::Drop)?;
        } else {
            bench.wire.take_no_frames();
        }
        let run = flood(bench, drops);
        bench.wire.take_frames(Verdict::Pass)?;
        run
    }
}

fn flood(bench: &Bench, drops: bool) -> Result<Result<Sample, Refusal>> {
    let before = bench.arrived()?;
    let sent = bench.generate(bench.flood(SHORTEST))?;
    bench.stray()?;
    let arrived = bench.arrived()?.received - before.received;
    let expected = if drops { sent.frames } else { 0 };
    let accepted = into_nothing(sent.frames, expected, arrived);
    let accepted = accepted.and(bench.alone(generator_share(sent.share())));
    Ok(accepted.map(|()| {
        Sample::from([
            (Figure::Sent, sent.frames as f64),
            (Figure::LinkReceived, arrived as f64),
            (Figure::SentPps, sent.pps()),
            (Figure::GeneratorNs, sent.cpu_ns as f64 / sent.frames as f64),
        ])
    }))
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
