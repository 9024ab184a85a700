//! What the kernel's modes cost on the receiving core, over one plain socket.

use anyhow::Result;

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::Load;
use crate::generator::frame::SHORTEST;
use crate::measure::{Column, Measure};
use crate::reader::{Place, Seat, Settings, Side, Work};
use crate::refusal::Refusal;
use crate::row::{Goal, Must, Row};
use crate::trial::Trial;

const GROUP: u16 = 42;

/// Members of a group, all on the core that does not receive: each needs little of it.
#[derive(Debug)]
struct Modes;

const COLUMNS: [Column; 13] = [
    Column::new("plain", "plain socket"),
    Column::new("hash_1", "hash, group of 1"),
    Column::new("hash_2", "hash, group of 2"),
    Column::new("lb_1", "lb, group of 1"),
    Column::new("lb_2", "lb, group of 2"),
    Column::new("rnd_1", "rnd, group of 1"),
    Column::new("rnd_2", "rnd, group of 2"),
    Column::new("cpu_1", "cpu, group of 1"),
    Column::new("cpu_2", "cpu, group of 2"),
    Column::new("rollover_1", "rollover, group of 1"),
    Column::new("rollover_2", "rollover, group of 2"),
    Column::new("qm_1", "qm, group of 1"),
    Column::new("qm_2", "qm, group of 2"),
];

impl Measure for Modes {
    fn name(&self) -> String {
        format!("{SHORTEST} bytes, defaults, by mode")
    }

    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        // There are many, so each is short.
        let load = Load::Flood(SHORTEST, bench.way, bench.time / 2);
        let trial = Trial {
            side: Side::Ours,
            settings: Settings::DEFAULT,
            work: Work::Count,
            seats: &seats(column.key),
            load,
        };
        Ok(trial.run(bench)?.map(|done| done.sample_with_share()))
    }

    fn shown(&self) -> &[Figure] {
        &[
            Figure::GeneratorNs,
            Figure::ReaderNs,
            Figure::CapturedPps,
            Figure::CapturedShare,
        ]
    }
}

fn seats(key: &'static str) -> Vec<Seat> {
    match key.split_once('_') {
        Some((mode, "1")) => vec![Seat::grouped(Place::Other, GROUP, mode)],
        Some((mode, _)) => vec![Seat::grouped(Place::Other, GROUP, mode); 2],
        None => vec![Seat::ALONE],
    }
}

static MODES: Modes = Modes;

const fn extra(what: &'static str, of: &'static str) -> Goal {
    Goal::ratio(what, &MODES, Figure::GeneratorNs, Must::Free)
        .between(of, "plain")
        .difference()
}

pub(super) const STEERING: Row = Row {
    name: "steering",
    what: "the kernel's modes: extra time of the receiving core over one plain socket",
    goals: &[
        extra("hash, group of 1, extra ns/packet", "hash_1"),
        extra("hash, group of 2, extra ns/packet", "hash_2"),
        extra("lb, group of 1, extra ns/packet", "lb_1"),
        extra("lb, group of 2, extra ns/packet", "lb_2"),
        extra("rnd, group of 1, extra ns/packet", "rnd_1"),
        extra("rnd, group of 2, extra ns/packet", "rnd_2"),
        extra("cpu, group of 1, extra ns/packet", "cpu_1"),
        extra("cpu, group of 2, extra ns/packet", "cpu_2"),
        extra("rollover, group of 1, extra ns/packet", "rollover_1"),
        extra("rollover, group of 2, extra ns/packet", "rollover_2"),
        extra("qm, group of 1, extra ns/packet", "qm_1"),
        extra("qm, group of 2, extra ns/packet", "qm_2"),
    ],
    published: &[],
};
