//! Several groups on one device; each gets all packets.

use super::trials::{CAPTURED, FLOODS, Trials, counting};
use crate::figure::Figure;
use crate::generator::frame::SHORTEST;
use crate::libraries::{Host, Side};
use crate::measure::Column;
use crate::reader::{Core, Seat};
use crate::row::{Goal, Must, Row};

const COLUMNS: [Column; 3] = [
    Column::new("one", "1 group"),
    Column::new("two", "2 groups"),
    Column::new("four", "4 groups"),
];

/// Groups of one member each.
const GROUPS: Trials = Trials {
    len: SHORTEST,
    what: "defaults, by groups",
    columns: &COLUMNS,
    receivers: |key| counting(Side::Ours, seats(key, "hash")),
    ..FLOODS
};
/// The same on the XDP engine; the host keeps nothing.
const XDP_GROUPS: Trials = Trials {
    what: "xdp, by groups",
    receivers: |key| counting(Side::Xdp(Host::Nothing), seats(key, "flow")),
    shown: &CAPTURED,
    ..GROUPS
};

fn seats(key: &str, mode: &'static str) -> Vec<Seat> {
    let groups = match key {
        "one" => 51..=51,
        "two" => 51..=52,
        _ => 51..=54,
    };
    let seat = |group| Seat::grouped(Core::Other, group, mode);
    groups.map(seat).collect()
}

const fn deliveries(what: &'static str, by: &'static Trials, of: &'static str, must: Must) -> Goal {
    Goal::ratio(what, by, Figure::CapturedPps, must).between(of, "one")
}

pub(super) const COPIES: Row = Row {
    name: "copies",
    what: "1, 2 and 4 groups on one device, each of which gets all packets: deliveries",
    goals: &[
        deliveries(
            "2 groups, deliveries/s, ratio to 1",
            &GROUPS,
            "two",
            Must::Free,
        ),
        deliveries(
            "4 groups, deliveries/s, ratio to 1",
            &GROUPS,
            "four",
            Must::Free,
        ),
        deliveries(
            "xdp, 2 groups, ratio to 1",
            &XDP_GROUPS,
            "two",
            Must::AtLeast(1.5),
        ),
        deliveries(
            "xdp, 4 groups, ratio to 1",
            &XDP_GROUPS,
            "four",
            Must::AtLeast(2.2),
        ),
    ],
    published: &[],
};
