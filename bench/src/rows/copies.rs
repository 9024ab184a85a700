//! Several groups on one device; each gets all packets.

use super::trials::{Trials, counting};
use crate::figure::Figure;
use crate::generator::frame::SHORTEST;
use crate::measure::Column;
use crate::reader::{Core, Seat};
use crate::row::{Goal, Must, Row};

const COLUMNS: [Column; 3] = [
    Column::new("one", "1 group"),
    Column::new("two", "2 groups"),
    Column::new("four", "4 groups"),
];

/// Groups of one member each.
static GROUPS: Trials = Trials {
    len: SHORTEST,
    what: "defaults, by groups",
    columns: &COLUMNS,
    shorter: 1,
    seats,
    reads: counting,
    shown: &[],
};

fn seats(key: &'static str) -> Vec<Seat> {
    let groups = match key {
        "one" => 51..=51,
        "two" => 51..=52,
        _ => 51..=54,
    };
    let seat = |group| Seat::grouped(Core::Other, group, "hash");
    groups.map(seat).collect()
}

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
