//! Readers on the core where the kernel receives, and on the other: TNAPI's Table 3, the paper's
//! Fig. 9.

use super::trials::{CAPTURED, Trials, counting};
use crate::figure::Figure;
use crate::generator::frame::SHORTEST;
use crate::measure::Column;
use crate::reader::{Core, Seat};
use crate::row::{Goal, Must, Row};

const GROUP: u16 = 43;

const COLUMNS: [Column; 6] = [
    Column::new("one_anywhere", "1 reader, unplaced"),
    Column::new("one_receiving", "1, on the receiving core"),
    Column::new("one_other", "1, on the other core"),
    Column::new("two_anywhere", "2 readers, unplaced"),
    Column::new("two_both", "2, one on each core"),
    Column::new("two_other", "2, both on the other"),
];

/// One reader, or two in a group.
static PLACED: Trials = Trials {
    len: SHORTEST,
    what: "defaults, by place",
    columns: &COLUMNS,
    shorter: 1,
    seats,
    reads: counting,
    shown: &CAPTURED,
};

fn seats(key: &'static str) -> Vec<Seat> {
    let seat = |place: &Core| Seat::grouped(*place, GROUP, "hash");
    places(key).iter().map(seat).collect()
}

fn places(key: &str) -> &'static [Core] {
    match key {
        "one_anywhere" => &[Core::Anywhere],
        "one_receiving" => &[Core::Receiving],
        "two_anywhere" => &[Core::Anywhere, Core::Anywhere],
        "two_both" => &[Core::Other, Core::Receiving],
        "two_other" => &[Core::Other, Core::Other],
        _ => &[Core::Other],
    }
}

/// The ratio of captured packets per second of two columns.
pub(super) const fn captured(what: &'static str, of: &'static str, to: &'static str) -> Goal {
    Goal::ratio(what, &PLACED, Figure::CapturedPps, Must::Free).between(of, to)
}

pub(super) const PLACEMENT: Row = Row {
    name: "placement",
    what: "readers unplaced, on the receiving core, on the other: captured, by the best placed one",
    goals: &[
        captured("1 reader unplaced, ratio", "one_anywhere", "one_other"),
        captured(
            "1 on the receiving core, ratio",
            "one_receiving",
            "one_other",
        ),
        captured("2 readers unplaced, ratio", "two_anywhere", "two_other"),
        captured("2, one on each core, ratio", "two_both", "two_other"),
    ],
    published: &[
        "TNAPI's Table 3, two links of 1488 kpps: threads unplaced 1158 and 1122 kpps, with the polling \
         threads on one hyper-thread 1290 and 1488, one thread per link 1488 and 1488",
    ],
};
