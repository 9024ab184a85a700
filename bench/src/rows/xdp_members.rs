//! Several members of a group on the XDP engine, and several receive queues.

use super::queues::Queues;
use super::trials::{CAPTURED, FLOODS, Trials, counting};
use crate::figure::Figure;
use crate::generator::frame::SHORTEST;
use crate::libraries::{Host, Side};
use crate::measure::Column;
use crate::reader::{Core, Seat};
use crate::row::{Goal, Must, Row};

const GROUP: u16 = 61;

const COLUMNS: [Column; 2] = [
    Column::new("one", "1 member"),
    Column::new("four", "4 members"),
];

/// All readers share the core that does not receive.
const MEMBERS: Trials = Trials {
    len: SHORTEST,
    what: "xdp, mode flow, by members",
    columns: &COLUMNS,
    receivers: |key| {
        let members = if key == "one" { 1 } else { 4 };
        let seats = vec![Seat::grouped(Core::Other, GROUP, "flow"); members];
        counting(Side::Xdp(Host::Nothing), seats)
    },
    shown: &CAPTURED,
    ..FLOODS
};

static QUEUES: Queues = Queues;

pub(super) const XDP_MEMBERS: Row = Row {
    name: "xdp-members",
    what: "the XDP engine: 4 members of a group against 1; 2 receive queues against 1",
    goals: &[
        Goal::ratio(
            "4 members, captured, ratio to 1",
            &MEMBERS,
            Figure::CapturedPps,
            Must::AtLeast(0.97),
        )
        .between("four", "one"),
        Goal::ratio(
            "2 queues, captured, ratio to 1",
            &QUEUES,
            Figure::CapturedPps,
            Must::AtLeast(1.6),
        )
        .between("two", "one"),
        Goal::ratio(
            "2 queues, parse and drop, ratio to 1",
            &QUEUES,
            Figure::CapturedPps,
            Must::Free,
        )
        .between("limit_two", "limit_one"),
    ],
    published: &[],
};
