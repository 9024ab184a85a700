//! Our XDP engine against the system's library and against what the driver can do at the most.

use super::flood::CUT as SNAPLEN;
use super::trials::{CAPTURED, FLOODS, Receivers, Trials, alone};
use crate::figure::Figure;
use crate::generator::Way;
use crate::generator::frame::SHORTEST;
use crate::measure::Column;
use crate::reader::Settings;
use crate::row::{Goal, Must, Row};
use crate::verdict::Verdict;

const SYSTEM: Column = Column::new("system", "libpcap");
const STEAL: Column = Column::new("steal", "fanpcap, xdp");
/// The host keeps nothing.
const STEALS: [Column; 2] = [STEAL, SYSTEM];
const STEALS_BY_LIMIT: [Column; 3] = [STEAL, SYSTEM, Column::new("limit", "parse and drop")];
/// The host gets all.
const PASSES: [Column; 2] = [Column::new("xdp", "fanpcap, xdp, XDP_PASS"), SYSTEM];

/// One counting reader, asleep until packets come. Both libraries get frames that reach the device
/// as XDP frames, or both skbs: a veth makes an XDP frame of an skb by copying it.
const STOLEN: Trials = Trials {
    len: SHORTEST,
    what: "defaults, the host keeps nothing",
    columns: &STEALS,
    way: Some(Way::LiveFrames),
    shown: &CAPTURED,
    ..FLOODS
};
const SHORT: Trials = Trials {
    columns: &STEALS_BY_LIMIT,
    receivers: |key| match key {
        "limit" => Receivers::Program(Verdict::Parse),
        key => alone(key, Settings::DEFAULT),
    },
    ..STOLEN
};
const WHOLE: Trials = Trials {
    len: 1496,
    ..STOLEN
};
const CUT: Trials = Trials {
    what: "snaplen 96, the host keeps nothing",
    receivers: |key| alone(key, SNAPLEN),
    ..WHOLE
};
const PASSED: Trials = Trials {
    what: "defaults, XDP_PASS",
    columns: &PASSES,
    ..STOLEN
};

const fn skbs(live: Trials) -> Trials {
    Trials {
        way: Some(Way::Sendmmsg),
        ..live
    }
}

const SHORT_SKBS: Trials = skbs(STOLEN);
const WHOLE_SKBS: Trials = skbs(WHOLE);
const CUT_SKBS: Trials = skbs(CUT);
const PASSED_SKBS: Trials = skbs(PASSED);

impl Trials {
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
