//! The paper's Fig. 10: two workers of a group capture what one busy worker can't.

use std::time::Duration;

use anyhow::Result;

use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::{Load, Way};
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::reader::{Core, Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::row::{Goal, Must, Row};
use crate::trial::Trial;

/// Busy workers of a group under `hash`, on our library.
#[derive(Debug)]
pub(super) struct Workers {
    /// Busy time per packet.
    microseconds: u32,
    /// Run length in floods, so that what the rings hold at the end is a small part.
    longer: u32,
}

/// Offered load in hundredths: packets per second times busy seconds per packet.
const LOAD: u64 = 130;
const LEN: usize = 508;
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

impl Measure for Workers {
    fn name(&self) -> String {
        format!(
            "{LEN} bytes, {} us of work a packet, load {}",
            self.microseconds,
            LOAD as f64 / 100.0
        )
    }

    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let workers = if column.key == "one" { 1 } else { 2 };
        let trial = Trial {
            side: Side::Ours,
            settings: RING,
            work: Work::Busy(self.microseconds * 1000),
            seats: &SEATS[..workers],
            load: self.load(bench.way, bench.time * self.longer),
        };
        Ok(trial.run(bench)?.map(|done| done.sample_with_share()))
    }
}

impl Workers {
    fn load(&self, way: Way, time: Duration) -> Load {
        Load::Paced {
            len: LEN,
            pps: LOAD * 10_000 / u64::from(self.microseconds),
            way,
            time,
        }
    }
}

/// The system's default size: with a larger ring one worker would lag longer before it loses
/// packets.
const RING: Settings = Settings {
    buffer: Some(2 << 20),
    ..Settings::DEFAULT
};

pub(super) static LIGHT: Workers = Workers {
    microseconds: 5,
    longer: 1,
};
static HEAVY: Workers = Workers {
    microseconds: 20,
    longer: 3,
};

const fn captured(what: &'static str, by: &'static Workers, of: &'static str, must: Must) -> Goal {
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
