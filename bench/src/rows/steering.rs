//! Cost of the kernel's modes and of ours on the receiving core, beyond a plain socket.

use super::trials::{FLOODS, Trials, counting};
use crate::figure::Figure;
use crate::generator::frame::SHORTEST;
use crate::libraries::Side;
use crate::measure::Column;
use crate::reader::{Core, Seat};
use crate::row::{Goal, Must, Row};

const GROUP: u16 = 42;

const PLAIN: Column = Column::new("plain", "plain socket");

/// Few columns, so that compared runs follow each other closely.
const FLOW: [Column; 3] = [
    PLAIN,
    Column::new("hash_2", "hash, group of 2"),
    Column::new("flow_2", "flow, group of 2"),
];

const KERNELS: [Column; 13] = [
    PLAIN,
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

const SHOWN: [Figure; 4] = [
    Figure::GeneratorNs,
    Figure::ReaderNs,
    Figure::CapturedPps,
    Figure::CapturedShare,
];

/// All on the core that does not receive: each needs little of it.
fn seats(key: &'static str) -> Vec<Seat> {
    match key.split_once('_') {
        Some((mode, "1")) => vec![Seat::grouped(Core::Other, GROUP, mode)],
        Some((mode, _)) => vec![Seat::grouped(Core::Other, GROUP, mode); 2],
        None => vec![Seat::ALONE],
    }
}

const OURS: Trials = Trials {
    len: SHORTEST,
    what: "defaults, flow and hash",
    columns: &FLOW,
    receivers: |key| counting(Side::Ours, seats(key)),
    shown: &SHOWN,
    ..FLOODS
};
const MODES: Trials = Trials {
    what: "defaults, by mode",
    columns: &KERNELS,
    lengths: 0.5,
    ..OURS
};

const fn extra(what: &'static str, by: &'static Trials, of: &'static str) -> Goal {
    Goal::ratio(what, by, Figure::GeneratorNs, Must::Free)
        .between(of, "plain")
        .difference()
}

pub(super) const STEERING: Row = Row {
    name: "steering",
    what: "our mode flow and the kernel's: extra time of the receiving core over one plain socket",
    goals: &[
        Goal::ratio(
            "extra ns/packet of flow by hash's",
            &OURS,
            Figure::GeneratorNs,
            Must::AtMost(0.65),
        )
        .between("flow_2", "hash_2")
        .over("plain"),
        extra("flow, group of 2, extra ns/packet", &OURS, "flow_2"),
        extra("hash beside it, extra ns/packet", &OURS, "hash_2"),
        extra("hash, group of 1, extra ns/packet", &MODES, "hash_1"),
        extra("hash, group of 2, extra ns/packet", &MODES, "hash_2"),
        extra("lb, group of 1, extra ns/packet", &MODES, "lb_1"),
        extra("lb, group of 2, extra ns/packet", &MODES, "lb_2"),
        extra("rnd, group of 1, extra ns/packet", &MODES, "rnd_1"),
        extra("rnd, group of 2, extra ns/packet", &MODES, "rnd_2"),
        extra("cpu, group of 1, extra ns/packet", &MODES, "cpu_1"),
        extra("cpu, group of 2, extra ns/packet", &MODES, "cpu_2"),
        extra(
            "rollover, group of 1, extra ns/packet",
            &MODES,
            "rollover_1",
        ),
        extra(
            "rollover, group of 2, extra ns/packet",
            &MODES,
            "rollover_2",
        ),
        extra("qm, group of 1, extra ns/packet", &MODES, "qm_1"),
        extra("qm, group of 2, extra ns/packet", &MODES, "qm_2"),
    ],
    published: &[],
};
