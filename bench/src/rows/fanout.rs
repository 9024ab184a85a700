//! The paper's Fig. 10: two workers of a group capture what one busy worker can't.

use super::trials::{FLOODS, Receivers, Trials};
use crate::figure::Figure;
use crate::libraries::Side;
use crate::measure::Column;
use crate::reader::{Core, Seat, Settings, Work};
use crate::row::{Goal, Must, Row};

const GROUP: u16 = 41;

/// The second worker shares its core with the generator and the kernel's receive path.
const SEATS: [Seat; 2] = [
    Seat::grouped(Core::Other, GROUP, "hash"),
    Seat::grouped(Core::Receiving, GROUP, "hash"),
];
const COLUMNS: [Column; 2] = [
    Column::new("one", "1 worker"),
    Column::new("two", "2 workers"),
];

/// The system's default size: with a larger ring one worker would lag longer before it loses
/// packets.
const RING: Settings = Settings {
    buffer: Some(2 << 20),
    ..Settings::DEFAULT
};

/// Workers of a group under `hash`, on our library, which are busy for so many microseconds with a
/// packet.
fn busy(microseconds: u32, key: &str) -> Receivers {
    let workers = if key == "one" { 1 } else { 2 };
    let work = Work::Busy(microseconds * 1000);
    Receivers::Readers(Side::Ours, RING, work, SEATS[..workers].to_vec())
}

pub(super) const LIGHT: Trials = Trials {
    len: 508,
    what: "5 us of work a packet, load 1.3",
    columns: &COLUMNS,
    receivers: |key| busy(5, key),
    pps: 1_300_000 / 5,
    ..FLOODS
};
const HEAVY: Trials = Trials {
    what: "20 us of work a packet, load 1.3",
    receivers: |key| busy(20, key),
    pps: 1_300_000 / 20,
    lengths: 3.0,
    ..LIGHT
};

const fn captured(what: &'static str, by: &'static Trials, of: &'static str, must: Must) -> Goal {
    Goal::ratio(what, by, Figure::CapturedShare, must).alone(of)
}

pub(super) const FANOUT: Row = Row {
    name: "fanout",
    what: "captured share with 1 and 2 busy workers, group with hash (the paper's Fig. 10)",
    goals: &[
        captured("5 us, 1 worker, %", &LIGHT, "one", Must::AtMost(85.0)),
        captured("5 us, 2 workers, %", &LIGHT, "two", Must::AtLeast(99.5)),
        captured("20 us, 1 worker, %", &HEAVY, "one", Must::AtMost(85.0)),
        captured("20 us, 2 workers, %", &HEAVY, "two", Must::AtLeast(99.5)),
    ],
    published: &[],
};
