//! The steps of the article and the figures of the paper, with their own numbers beside ours.

use super::fanout::LIGHT;
use super::placement;
use super::trials::{CAPTURED, FLOODS, Receivers, Trials, counting};
use crate::figure::Figure;
use crate::generator::frame::SHORTEST;
use crate::libraries::Side;
use crate::measure::Column;
use crate::reader::{Core, Seat, Settings, Work};
use crate::row::{Goal, Must, Row};

const GROUP: u16 = 44;

const STEPS: [Column; 4] = [
    Column::new("recv", "recv"),
    Column::new("fanout", "fanout"),
    Column::new("ring", "ring"),
    Column::new("ring_fanout", "ring + fanout"),
];

const ON_BOTH: [Seat; 2] = [
    Seat::grouped(Core::Other, GROUP, "hash"),
    Seat::grouped(Core::Receiving, GROUP, "hash"),
];

/// The article's four steps: recvfrom(2) per packet or a ring, one reader or one on each core.
const LADDER: Trials = Trials {
    len: SHORTEST,
    what: "the article's steps",
    columns: &STEPS,
    receivers: |key| {
        let seats = match key {
            "recv" | "ring" => vec![Seat::ALONE],
            _ => ON_BOTH.to_vec(),
        };
        match key {
            "recv" | "fanout" => {
                Receivers::Readers(Side::System, Settings::DEFAULT, Work::Receive, seats)
            }
            _ => counting(Side::Ours, seats),
        }
    },
    shown: &CAPTURED,
    ..FLOODS
};

const MODES: [Column; 4] = [
    Column::new("none", "1 reader, no fanout"),
    Column::new("hash", "2 readers, hash"),
    Column::new("rnd", "2 readers, rnd"),
    Column::new("qm", "2 readers, qm"),
];

/// The paper's Fig. 6: counting readers at one frame length; two in a group for each mode, and one
/// without.
const fn by_mode(len: usize) -> Trials {
    Trials {
        len,
        what: "readers that count, by mode",
        columns: &MODES,
        receivers: |key| {
            let seats = match key {
                "none" => vec![Seat::ALONE],
                mode => vec![Seat::grouped(Core::Other, GROUP, mode); 2],
            };
            counting(Side::Ours, seats)
        },
        // There are many columns, so each run is short.
        lengths: 0.5,
        shown: &CAPTURED,
        ..FLOODS
    }
}

const AT_60: Trials = by_mode(SHORTEST);
const AT_252: Trials = by_mode(252);
const AT_1496: Trials = by_mode(1496);

const fn step(what: &'static str, of: &'static str) -> Goal {
    Goal::ratio(what, &LADDER, Figure::CapturedPps, Must::Free).between(of, "recv")
}

const fn mode(what: &'static str, at: &'static Trials, of: &'static str) -> Goal {
    Goal::ratio(what, at, Figure::CapturedPps, Must::Free).between(of, "none")
}

const fn share(what: &'static str, of: &'static str) -> Goal {
    Goal::ratio(what, &LIGHT, Figure::CapturedShare, Must::Free).alone(of)
}

pub(super) const PAPER: Row = Row {
    name: "paper",
    what: "the article's ladder and the paper's Figs. 6, 9 and 10 in shape",
    goals: &[
        step("ladder: fanout, ratio to recv", "fanout"),
        step("ladder: ring, ratio to recv", "ring"),
        step("ladder: ring + fanout, ratio to recv", "ring_fanout"),
        mode("Fig. 6: hash, 60 bytes, ratio", &AT_60, "hash"),
        mode("Fig. 6: rnd, 60 bytes, ratio", &AT_60, "rnd"),
        mode("Fig. 6: qm, 60 bytes, ratio", &AT_60, "qm"),
        mode("Fig. 6: hash, 252 bytes, ratio", &AT_252, "hash"),
        mode("Fig. 6: rnd, 252 bytes, ratio", &AT_252, "rnd"),
        mode("Fig. 6: qm, 252 bytes, ratio", &AT_252, "qm"),
        mode("Fig. 6: hash, 1496 bytes, ratio", &AT_1496, "hash"),
        mode("Fig. 6: rnd, 1496 bytes, ratio", &AT_1496, "rnd"),
        mode("Fig. 6: qm, 1496 bytes, ratio", &AT_1496, "qm"),
        placement::captured("Fig. 9: 1 of 2 cores overlaps", "two_both", "two_other"),
        placement::captured("Fig. 9: 2 of 2 cores overlap", "two_receiving", "two_other"),
        placement::captured("Fig. 9: 1 reader, overlaps", "one_receiving", "one_other"),
        share("Fig. 10: 1 worker, % of sent", "one"),
        share("Fig. 10: 2 workers, % of sent", "two"),
    ],
    published: &[
        "article, 8 cores and queues, packets/s: recv 186315-222048, fanout 2234301-2266138, ring \
         3582498-3815506, ring + fanout 8912556-9611580: 1, 11, 18 and 44 times recv",
        "paper, Fig. 6 (4 threads, 1-4 receiving cores, 10 Gbit/s; shape only): any fan-out captures more short \
         packets than none, as receiving cores contend for one ring; qm is the lightest; line rate \
         from 128 bytes with qm, from 256 with the others. Here one core receives, so there is nothing \
         to contend for, and a mode shows only its cost",
        "paper, Fig. 9 (shape only): the more workers share a core with the receive path, the less is captured; \
         the effect is with short packets",
        "paper, Fig. 10 (Tstat, 300 bytes, 3.8 Mpps; shape only): one instance can't keep up, two process all \
         that was received",
    ],
};
