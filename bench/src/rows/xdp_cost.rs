//! What each part of the XDP engine's path costs the receiving core.

use super::trials::{FLOODS, Receivers, Trials, alone};
use crate::figure::Figure;
use crate::generator::Way;
use crate::generator::frame::SHORTEST;
use crate::measure::Column;
use crate::reader::Settings;
use crate::row::{Goal, Must, Row};
use crate::verdict::Verdict;

const COLUMNS: [Column; 8] = [
    Column::new("alone", "generator alone"),
    Column::new("drop", "XDP_DROP"),
    Column::new("parse", "parse and drop"),
    Column::new("stamp", "parse, clock, drop"),
    Column::new("steal", "fanpcap, xdp, steal"),
    Column::new("pass", "XDP_PASS, no reader"),
    Column::new("xdp", "fanpcap, xdp, XDP_PASS"),
    Column::new("system", "libpcap"),
];

/// The same flood into more and more of it.
const STACK: Trials = Trials {
    len: SHORTEST,
    what: "by what receives them",
    columns: &COLUMNS,
    receivers: |key| match key {
        "alone" => Receivers::Nothing,
        "drop" => Receivers::Program(Verdict::Drop),
        "parse" => Receivers::Program(Verdict::Parse),
        "stamp" => Receivers::Program(Verdict::Stamp),
        "pass" => Receivers::Program(Verdict::Pass),
        key => alone(key, Settings::DEFAULT),
    },
    way: Some(Way::LiveFrames),
    // There are many columns.
    lengths: 0.5,
    shown: &[Figure::GeneratorNs, Figure::ReaderNs, Figure::CapturedPps],
    ..FLOODS
};

const fn of(what: &'static str, of: &'static str) -> Goal {
    Goal::ratio(what, &STACK, Figure::GeneratorNs, Must::Free).alone(of)
}

const fn beyond(what: &'static str, of: &'static str, to: &'static str) -> Goal {
    Goal::ratio(what, &STACK, Figure::GeneratorNs, Must::Free)
        .between(of, to)
        .difference()
}

pub(super) const XDP_COST: Row = Row {
    name: "xdp-cost",
    what: "the receiving core's time for a packet of 60 bytes, part by part, in ns",
    goals: &[
        of("generator", "alone"),
        beyond("device and XDP_DROP", "drop", "alone"),
        beyond("parse and hash", "parse", "drop"),
        beyond("clock", "stamp", "parse"),
        beyond("the rest of the engine's program", "steal", "stamp"),
        beyond("skb and stack by XDP_PASS", "pass", "drop"),
        beyond("engine with XDP_PASS, beyond that", "xdp", "pass"),
        beyond("libpcap's socket, beyond that", "system", "pass"),
        Goal::ratio(
            "libpcap by xdp, without the generator",
            &STACK,
            Figure::GeneratorNs,
            Must::Free,
        )
        .between("system", "steal")
        .over("alone"),
    ],
    published: &[],
};
