//! Our XDP engine against the system's library and against what the driver can do at the most.

use anyhow::Result;

use super::trials::CAPTURED;
use super::unread::{self, no_live_frames};
use crate::bench::Bench;
use crate::figure::{Figure, Sample};
use crate::generator::frame::SHORTEST;
use crate::generator::{Load, Way};
use crate::libraries::Side;
use crate::measure::{Column, Measure};
use crate::reader::{Seat, Settings, Work};
use crate::refusal::Refusal;
use crate::row::{Goal, Must, Row};
use crate::trial::Trial;
use crate::verdict::Verdict;

/// One counting reader, asleep until packets come. Both libraries get frames that reach the device
/// as XDP frames, or both skbs: a veth makes an XDP frame of an skb by copying it.
#[derive(Debug)]
struct Engine {
    len: usize,
    settings: Settings,
    columns: &'static [Column],
    way: Way,
}

const SYSTEM: Column = Column::new("system", "libpcap");
const STEAL: Column = Column::new("steal", "fanpcap, xdp");
/// The host keeps nothing.
const STEALS: [Column; 2] = [STEAL, SYSTEM];
const STEALS_BY_LIMIT: [Column; 3] = [STEAL, SYSTEM, Column::new("limit", "parse and drop")];
/// The host gets all.
const PASSES: [Column; 2] = [Column::new("xdp", "fanpcap, xdp, XDP_PASS"), SYSTEM];

impl Measure for Engine {
    fn name(&self) -> String {
        let host = if self.columns == PASSES {
            "XDP_PASS"
        } else {
            "the host keeps nothing"
        };
        let from = match self.way {
            Way::LiveFrames => "",
            Way::Sendmmsg => ", from skbs",
        };
        format!("{} bytes, {}, {host}{from}", self.len, self.settings.name())
    }

    fn columns(&self) -> &[Column] {
        self.columns
    }

    fn absent(&self, bench: &Bench, _column: &Column) -> Result<Option<String>> {
        Ok(match self.way {
            Way::LiveFrames => no_live_frames(bench),
            Way::Sendmmsg => None,
        })
    }

    fn run(&self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        if column.key == "limit" {
            return unread::flood(bench, Some(Verdict::Parse), bench.time);
        }
        let trial = Trial {
            side: Side::of(column.key),
            settings: self.settings,
            work: Work::Count,
            seats: &[Seat::ALONE],
            load: Load::Flood(self.len, self.way, bench.time),
        };
        Ok(trial.run(bench)?.map(|done| done.sample_with_share()))
    }

    fn shown(&self) -> &[Figure] {
        &CAPTURED
    }
}

const LONG: usize = 1496;
const SNAPLEN: Settings = Settings {
    snaplen: Some(96),
    ..Settings::DEFAULT
};

const fn live(len: usize, settings: Settings, columns: &'static [Column]) -> Engine {
    Engine {
        len,
        settings,
        columns,
        way: Way::LiveFrames,
    }
}

const fn skbs(len: usize, settings: Settings, columns: &'static [Column]) -> Engine {
    Engine {
        len,
        settings,
        columns,
        way: Way::Sendmmsg,
    }
}

static SHORT: Engine = live(SHORTEST, Settings::DEFAULT, &STEALS_BY_LIMIT);
static CUT: Engine = live(LONG, SNAPLEN, &STEALS);
static WHOLE: Engine = live(LONG, Settings::DEFAULT, &STEALS);
static PASSED: Engine = live(SHORTEST, Settings::DEFAULT, &PASSES);

static SHORT_SKBS: Engine = skbs(SHORTEST, Settings::DEFAULT, &STEALS);
static CUT_SKBS: Engine = skbs(LONG, SNAPLEN, &STEALS);
static WHOLE_SKBS: Engine = skbs(LONG, Settings::DEFAULT, &STEALS);
static PASSED_SKBS: Engine = skbs(SHORTEST, Settings::DEFAULT, &PASSES);

impl Engine {
    const fn captured(&'static self, what: &'static str, of: &'static str, must: Must) -> Goal {
        Goal::ratio(what, self, Figure::CapturedPps, must).between(of, "system")
    }

    /// No packet is lost.
    const fn whole(&'static self, what: &'static str, of: &'static str) -> Goal {
        Goal::ratio(what, self, Figure::CapturedShare, Must::AtLeast(100.0)).alone(of)
    }

    const fn cpu(&'static self, what: &'static str, must: Must) -> Goal {
        Goal::ratio(what, self, Figure::ReaderNs, must).alone("steal")
    }
}

pub(super) const XDP: Row = Row {
    name: "xdp",
    what: "the XDP engine, frames that arrive as XDP frames, reader asleep: captured, to libpcap",
    goals: &[
        SHORT
            .captured("60 B, captured, ratio", "steal", Must::AtLeast(2.5))
            .aim(3.2),
        SHORT
            .captured("60 B, ratio to parse and drop", "steal", Must::AtLeast(0.6))
            .between("steal", "limit")
            .aim(0.72),
        SHORT.cpu("60 B, reader CPU, ns/packet", Must::AtMost(10.0)),
        SHORT.whole("60 B, captured, % of sent", "steal"),
        CUT.captured("1496 B, snaplen 96, ratio", "steal", Must::AtLeast(2.8))
            .aim(3.4),
        CUT.whole("1496 B, snaplen 96, % of sent", "steal"),
        WHOLE
            .captured("1496 B whole, ratio", "steal", Must::AtLeast(1.6))
            .aim(2.0),
        WHOLE.whole("1496 B whole, % of sent", "steal"),
        PASSED
            .captured("60 B, XDP_PASS, ratio", "xdp", Must::AtLeast(1.1))
            .aim(1.3),
        PASSED.whole("60 B, XDP_PASS, % of sent", "xdp"),
    ],
    published: &[],
};

pub(super) const XDP_SKB: Row = Row {
    name: "xdp-skb",
    what: "the same from a sender of skbs, which is slower than both libraries",
    goals: &[
        SHORT_SKBS.captured("60 B, captured, ratio", "steal", Must::Free),
        CUT_SKBS.captured("1496 B, snaplen 96, ratio", "steal", Must::Free),
        WHOLE_SKBS.captured("1496 B whole, ratio", "steal", Must::Free),
        PASSED_SKBS.captured("60 B, XDP_PASS, ratio", "xdp", Must::Free),
    ],
    published: &[],
};
