//! The generator into a device that drops everything, compared with the generator alone.

use super::trials::{FLOODS, Receivers, Trials};
use crate::figure::Figure;
use crate::generator::Way;
use crate::generator::frame::SHORTEST;
use crate::measure::Column;
use crate::row::{Goal, Must, Row};
use crate::verdict::Verdict;

const COLUMNS: [Column; 2] = [
    Column::new("drop", "into XDP_DROP"),
    Column::new("alone", "alone"),
];

const GENERATOR: Trials = Trials {
    len: SHORTEST,
    what: "no reader",
    columns: &COLUMNS,
    receivers: |key| match key {
        "drop" => Receivers::Program(Verdict::Drop),
        _ => Receivers::Nothing,
    },
    way: Some(Way::LiveFrames),
    shown: &[
        Figure::Sent,
        Figure::LinkReceived,
        Figure::SentPps,
        Figure::GeneratorNs,
    ],
    ..FLOODS
};

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
