//! What each part of the XDP engine's path costs the receiving core.

use anyhow::Result;

use super::unread::{self, no_live_frames};
use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::frame::SHORTEST;
use crate::generator::{Load, Way};
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::reader::{Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::row::{Goal, Must, Row};
use crate::trial::Trial;
use crate::verdict::Verdict;

/// The same flood into more and more of it.
#[derive(Debug)]
struct Stack;

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

impl Measure for Stack {
    fn name(&self) -> String {
        format!("{SHORTEST} bytes, by what receives them")
    }

    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn absent(&self, bench: &Bench, _column: &Column) -> Result<Option<String>> {
        Ok(no_live_frames(bench))
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        // Short runs: there are many columns.
        let time = bench.time / 2;
        let verdict = match column.key {
            "alone" => None,
            "drop" => Some(Verdict::Drop),
            "parse" => Some(Verdict::Parse),
            "stamp" => Some(Verdict::Stamp),
            "pass" => Some(Verdict::Pass),
            _ => return captured(bench, Side::of(column.key)),
        };
        unread::flood(bench, verdict, time)
    }

    fn shown(&self) -> &[Figure] {
        &[Figure::GeneratorNs, Figure::ReaderNs, Figure::CapturedPps]
    }
}

fn captured(bench: &Bench, side: Side) -> Result<Result<Sample, Refusal>> {
    let trial = Trial {
        side,
        settings: Settings::DEFAULT,
        work: Work::Count,
        seats: &[Seat::ALONE],
        load: Load::Flood(SHORTEST, Way::LiveFrames, bench.time / 2),
    };
    Ok(trial.run(bench)?.map(|done| done.sample()))
}

static STACK: Stack = Stack;

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
