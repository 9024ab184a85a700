//! Readers on the core where the kernel receives, and on the other: TNAPI's Table 3, the paper's
//! Fig. 9, the article's script.

use super::polled::{Layout, Polled};
use super::trials::{CAPTURED, FLOODS, Trials, counting};
use crate::figure::Figure;
use crate::generator::frame::SHORTEST;
use crate::libraries::Side;
use crate::measure::Column;
use crate::reader::{Core, Seat};
use crate::row::{Goal, Must, Row};

const GROUP: u16 = 43;

const COLUMNS: [Column; 7] = [
    Column::new("one_anywhere", "1 reader, unplaced"),
    Column::new("one_receiving", "1, on the receiving core"),
    Column::new("one_other", "1, on the other core"),
    Column::new("two_anywhere", "2 readers, unplaced"),
    Column::new("two_other", "2, both on the other"),
    Column::new("two_both", "2, one on each core"),
    Column::new("two_receiving", "2, both on the receiving core"),
];

/// One reader, or two in a group.
const PLACED: Trials = Trials {
    len: SHORTEST,
    what: "defaults, by place",
    columns: &COLUMNS,
    receivers: |key| counting(Side::Ours, seats(key)),
    shown: &CAPTURED,
    ..FLOODS
};

/// The paper's Fig. 9 at another frame length: of two readers none, one or both overlap.
const fn overlap(len: usize) -> Trials {
    Trials {
        len,
        what: "defaults, by overlap",
        columns: COLUMNS.split_at(4).1,
        lengths: 0.5,
        ..PLACED
    }
}

const AT_508: Trials = overlap(508);
const AT_1496: Trials = overlap(1496);

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
        "two_receiving" => &[Core::Receiving, Core::Receiving],
        _ => &[Core::Other],
    }
}

/// Frames per second on all links together. TNAPI was offered three times as many, by another
/// machine; here the generators take a part of the same two CPUs.
const OFFERED: u64 = 1_000_000;

const TESTS: [Column; 6] = [
    Column::new("unplaced", "test 1: unplaced"),
    Column::new("by_queue", "test 2: a reader a queue"),
    Column::new("by_link", "test 3: a reader a link"),
    Column::new("crossed", "crossed"),
    Column::new("parted", "one CPU polls"),
    Column::new("tuned", "as tune plans"),
];

/// TNAPI's Table 3.
static TABLE: Polled = Polled {
    what: "2 links, polled by threads",
    columns: &TESTS,
    links: 2,
    pps: OFFERED,
    layout: |key, link| {
        const CPUS: [[usize; 1]; 2] = [[0], [1]];
        let (own, other) = (link, 1 - link);
        match key {
            "unplaced" => Layout::Unplaced(2),
            "by_queue" => Layout::Placed {
                threads: [0, 1],
                readers: &[0, 1],
            },
            "by_link" => Layout::Placed {
                threads: [own; 2],
                readers: &CPUS[own],
            },
            "crossed" => Layout::Placed {
                threads: [own; 2],
                readers: &CPUS[other],
            },
            "parted" => Layout::Placed {
                threads: [1; 2],
                readers: &[0],
            },
            _ => Layout::Tuned,
        }
    },
};

const QUEUES: [Column; 5] = [
    Column::new("unplaced", "unplaced"),
    Column::new("spread", "the article's script"),
    Column::new("beside", "one CPU for all"),
    Column::new("apart", "apart"),
    Column::new("tuned", "as tune plans"),
];

/// One link with two queues, and one reader.
static LINK: Polled = Polled {
    what: "1 link, polled by threads",
    columns: &QUEUES,
    links: 1,
    pps: OFFERED,
    layout: |key, _| match key {
        "unplaced" => Layout::Unplaced(1),
        "spread" => Layout::Placed {
            threads: [0, 1],
            readers: &[1],
        },
        "beside" => Layout::Placed {
            threads: [1; 2],
            readers: &[1],
        },
        "apart" => Layout::Placed {
            threads: [1; 2],
            readers: &[0],
        },
        _ => Layout::Tuned,
    },
};

/// The ratio of captured packets per second of two columns.
pub(super) const fn captured(what: &'static str, of: &'static str, to: &'static str) -> Goal {
    ratio(what, &PLACED, of, to)
}

const fn ratio(
    what: &'static str,
    by: &'static dyn crate::measure::Measure,
    of: &'static str,
    to: &'static str,
) -> Goal {
    Goal::ratio(what, by, Figure::CapturedPps, Must::Free).between(of, to)
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
        captured(
            "2, both on the receiving core, ratio",
            "two_receiving",
            "two_other",
        ),
        ratio(
            "Fig. 9, 508 bytes: 1 of 2 overlaps",
            &AT_508,
            "two_both",
            "two_other",
        ),
        ratio(
            "Fig. 9, 508 bytes: 2 of 2 overlap",
            &AT_508,
            "two_receiving",
            "two_other",
        ),
        ratio(
            "Fig. 9, 1496 bytes: 1 of 2 overlaps",
            &AT_1496,
            "two_both",
            "two_other",
        ),
        ratio(
            "Fig. 9, 1496 bytes: 2 of 2 overlap",
            &AT_1496,
            "two_receiving",
            "two_other",
        ),
    ],
    published: &[
        "paper, Fig. 9 (shape only): the more workers share a core with the receive path, the less is captured; \
         the effect is with short packets",
    ],
};

pub(super) const LINKS: Row = Row {
    name: "placement-links",
    what: "two links and one, polled by threads: captured, by where threads and readers run",
    goals: &[
        ratio(
            "Table 3: test 1, ratio to test 3",
            &TABLE,
            "unplaced",
            "by_link",
        ),
        ratio(
            "Table 3: test 2, ratio to test 3",
            &TABLE,
            "by_queue",
            "by_link",
        ),
        ratio(
            "2 links, crossed, ratio to test 3",
            &TABLE,
            "crossed",
            "by_link",
        ),
        ratio(
            "2 links, one CPU polls, ratio to test 3",
            &TABLE,
            "parted",
            "by_link",
        ),
        ratio("2 links, tune, ratio to test 3", &TABLE, "tuned", "by_link"),
        ratio(
            "1 link, unplaced, ratio to apart",
            &LINK,
            "unplaced",
            "apart",
        ),
        ratio(
            "1 link, the article's script, ratio",
            &LINK,
            "spread",
            "apart",
        ),
        ratio("1 link, one CPU for all, ratio", &LINK, "beside", "apart"),
        ratio("1 link, tune, ratio to apart", &LINK, "tuned", "apart"),
    ],
    published: &[
        "TNAPI's Table 3, two links of 1488 kpps: threads unplaced 1158 and 1122 kpps, with the polling \
         threads on one hyper-thread 1290 and 1488, one thread per link 1488 and 1488",
        "Here two CPUs have the generators as well, no CPU has a sibling, and frames are lost where a \
         polling thread waits for its CPU. Only the order of the layouts can be compared",
    ],
};
