//! Several members of a group on the XDP engine, and several receive queues.

use super::queues::Queues;
use super::trials::{CAPTURED, Trials};
use crate::figure::Figure;
use crate::generator::frame::SHORTEST;
use crate::libraries::{Host, Side};
use crate::measure::Column;
use crate::reader::{Core, Seat, Work};
use crate::row::{Goal, Must, Row};

const GROUP: u16 = 61;

const COLUMNS: [Column; 2] = [
    Column::new("one", "1 member"),
    Column::new("four", "4 members"),
];

/// All readers share the core that does not receive.
static MEMBERS: Trials = Trials {
    len: SHORTEST,
    what: "xdp, mode flow, by members",
    columns: &COLUMNS,
    shorter: 1,
    seats: |key| {
        let members = if key == "one" { 1 } else { 4 };
        vec![Seat::grouped(Core::Other, GROUP, "flow"); members]
    },
    reads: |_| (Side::Xdp(Host::Nothing), Work::Count),
    shown: &CAPTURED,
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
