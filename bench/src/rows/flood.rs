//! Rows with one reader on each library and a flood.

use super::SIDES;
use super::trials::{FLOODS, Trials, alone};
use crate::figure::Figure;
use crate::generator::frame::SHORTEST;
use crate::reader::Settings;
use crate::row::{Goal, Must, Row};

pub(super) const SHORT_FRAMES: Trials = Trials {
    len: SHORTEST,
    what: "defaults",
    columns: &SIDES,
    ..FLOODS
};
const LONG_FRAMES: Trials = Trials {
    len: 1496,
    what: "snaplen 96",
    receivers: |key| alone(key, CUT),
    ..SHORT_FRAMES
};
pub(super) const CUT: Settings = Settings {
    snaplen: Some(96),
    ..Settings::DEFAULT
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
