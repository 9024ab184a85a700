//! Where readers run, against where the kernel receives: TNAPI's Table 3, the paper's Fig. 9.

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

const GROUP: u16 = 43;

/// One reader, or two in a group.
#[derive(Debug)]
pub(super) struct Placed;

const COLUMNS: [Column; 6] = [
    Column::new("one_anywhere", "1 reader, unplaced"),
    Column::new("one_receiving", "1, on the receiving core"),
    Column::new("one_other", "1, on the other core"),
    Column::new("two_anywhere", "2 readers, unplaced"),
    Column::new("two_both", "2, one on each core"),
    Column::new("two_other", "2, both on the other"),
];

impl Measure for Placed {
    fn name(&self) -> String {
        format!("{SHORTEST} bytes, defaults, by place")
    }

    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let seats: Vec<Seat> = places(column.key)
            .iter()
            .map(|place| Seat::grouped(*place, GROUP, "hash"))
            .collect();
        let trial = Trial {
            side: Side::Ours,
            settings: Settings::DEFAULT,
            work: Work::Count,
            seats: &seats,
            load: bench.flood(SHORTEST),
        };
        Ok(trial.run(bench)?.map(|done| done.sample_with_share()))
    }

    fn shown(&self) -> &[Figure] {
        &[
            Figure::CapturedPps,
            Figure::CapturedShare,
            Figure::ReaderNs,
            Figure::GeneratorNs,
        ]
    }
}

fn places(key: &str) -> &'static [Place] {
    match key {
        "one_anywhere" => &[Place::Anywhere],
        "one_receiving" => &[Place::Receiving],
        "two_anywhere" => &[Place::Anywhere, Place::Anywhere],
        "two_both" => &[Place::Other, Place::Receiving],
        "two_other" => &[Place::Other, Place::Other],
        _ => &[Place::Other],
    }
}

pub(super) static PLACED: Placed = Placed;

/// Captured packets a second of one place by those of another.
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
