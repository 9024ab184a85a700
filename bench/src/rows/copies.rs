//! Several groups on one device: each gets all packets.

use anyhow::Result;

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::frame::SHORTEST;
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::reader::{Place, Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::row::{Goal, Must, Row};
use crate::trial::Trial;

/// Groups of one member each.
#[derive(Debug)]
struct Groups;

const COLUMNS: [Column; 3] = [
    Column::new("one", "1 group"),
    Column::new("two", "2 groups"),
    Column::new("four", "4 groups"),
];

const SEATS: [Seat; 4] = [
    Seat::grouped(Place::Other, 51, "hash"),
    Seat::grouped(Place::Other, 52, "hash"),
    Seat::grouped(Place::Other, 53, "hash"),
    Seat::grouped(Place::Other, 54, "hash"),
];

impl Measure for Groups {
    fn name(&self) -> String {
        format!("{SHORTEST} bytes, defaults, by groups")
    }

    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let groups = match column.key {
            "one" => 1,
            "two" => 2,
            _ => 4,
        };
        let trial = Trial {
            side: Side::Ours,
            settings: Settings::DEFAULT,
            work: Work::Count,
            seats: &SEATS[..groups],
            load: bench.flood(SHORTEST),
        };
        Ok(trial.run(bench)?.map(|done| done.sample()))
    }
}

static GROUPS: Groups = Groups;

const fn deliveries(what: &'static str, of: &'static str) -> Goal {
    Goal::ratio(what, &GROUPS, Figure::CapturedPps, Must::Free).between(of, "one")
}

pub(super) const COPIES: Row = Row {
    name: "copies",
    what: "1, 2 and 4 groups on one device, each of which gets all packets: deliveries",
    goals: &[
        deliveries("2 groups, deliveries/s, ratio to 1", "two"),
        deliveries("4 groups, deliveries/s, ratio to 1", "four"),
    ],
    published: &[],
};
