//! The rows of the table: what each measures, and the goals it must reach.

use serde::Serialize;

use crate::bench::Measure;
use crate::figure::Figure;
use crate::generator::frame::SHORTEST;
use crate::pairs::{Pair, Spread};
use crate::reader::Settings;

/// A row: `make bench NAME=name` takes it alone.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// For people.
    pub(crate) what: &'static str,
    pub(crate) goals: &'static [Goal],
}

/// One figure, what becomes of a pair's two values, and the bound for that.
#[derive(Debug)]
pub(crate) struct Goal {
    /// For people.
    pub(crate) what: &'static str,
    pub(crate) measure: Measure,
    pub(crate) figure: Figure,
    pub(crate) compared: Compared,
    pub(crate) must: Must,
}

/// What a pair comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Compared {
    /// Ours by the system's.
    Ratio,
    /// Ours less the system's.
    Difference,
    /// Ours alone.
    Alone,
}

/// The bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Must {
    /// The median is this or more.
    AtLeast(f64),
    /// The median is this or less.
    AtMost(f64),
    /// The median is this or more, and some pair reaches 1.
    Parity(f64),
}

impl Goal {
    /// The pairs' values for this goal.
    pub(crate) fn spread(&self, pairs: &[Pair]) -> Option<Spread> {
        let value = |pair: &Pair| {
            let ours = *pair.ours.get(&self.figure)?;
            let system = || pair.system.get(&self.figure).copied();
            Some(match self.compared {
                Compared::Ratio => ours / system()?,
                Compared::Difference => ours - system()?,
                Compared::Alone => ours,
            })
        };
        Spread::of(pairs.iter().filter_map(value))
    }
}

impl Must {
    pub(crate) fn holds(self, spread: Spread) -> bool {
        match self {
            Self::AtLeast(bound) => spread.median >= bound,
            Self::AtMost(bound) => spread.median <= bound,
            Self::Parity(bound) => spread.median >= bound && spread.most >= 1.0,
        }
    }

    /// For people.
    pub(crate) fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!(">= {bound}"),
            Self::AtMost(bound) => format!("<= {bound}"),
            Self::Parity(bound) => format!(">= {bound}, reaching 1"),
        }
    }
}

/// What a program gets that sets nothing.
const DEFAULT: Settings = Settings {
    snaplen: None,
    immediate: false,
    timeout: None,
    filter: None,
};
const SHORT: Settings = Settings {
    snaplen: Some(96),
    ..DEFAULT
};
const IMMEDIATE: Settings = Settings {
    immediate: true,
    ..DEFAULT
};
/// With a short timeout, so that the first packet is handed over soon.
const OPEN: Settings = Settings {
    timeout: Some(1),
    ..DEFAULT
};
const OPEN_FILTER: Settings = Settings {
    filter: Some("udp"),
    ..OPEN
};

const FLOOD: Measure = Measure::Flood(SHORTEST, DEFAULT);
const LONG_FLOOD: Measure = Measure::Flood(1496, SHORT);

/// All of them.
pub(crate) const ROWS: &[Row] = &[
    Row {
        name: "tpacket",
        what: "captured packets, 60 bytes, default settings",
        goals: &[Goal {
            what: "captured packets/s, ratio",
            measure: FLOOD,
            figure: Figure::CapturedPps,
            compared: Compared::Ratio,
            must: Must::Parity(0.97),
        }],
    },
    Row {
        name: "tpacket-cpu",
        what: "the reader's CPU time, 60 bytes, default settings",
        goals: &[Goal {
            what: "reader CPU per packet, ratio",
            measure: FLOOD,
            figure: Figure::ReaderNs,
            compared: Compared::Ratio,
            must: Must::AtMost(0.5),
        }],
    },
    Row {
        name: "snaplen",
        what: "snaplen 96 at 1496 bytes, no filter",
        goals: &[
            Goal {
                what: "reader CPU per packet, ratio",
                measure: LONG_FLOOD,
                figure: Figure::ReaderNs,
                compared: Compared::Ratio,
                must: Must::AtMost(0.15),
            },
            Goal {
                what: "captured packets/s, ratio",
                measure: LONG_FLOOD,
                figure: Figure::CapturedPps,
                compared: Compared::Ratio,
                must: Must::AtLeast(1.0),
            },
        ],
    },
    Row {
        name: "immediate",
        what: "immediate mode: 60 bytes, and single packets every 2 ms",
        goals: &[
            Goal {
                what: "captured packets/s, ratio",
                measure: Measure::Flood(SHORTEST, IMMEDIATE),
                figure: Figure::CapturedPps,
                compared: Compared::Ratio,
                must: Must::AtLeast(1.4),
            },
            Goal {
                what: "latency p99, difference in us",
                measure: Measure::Latency(IMMEDIATE),
                figure: Figure::LatencyP99Us,
                compared: Compared::Difference,
                must: Must::AtMost(1000.0),
            },
        ],
    },
    Row {
        name: "open",
        what: "pcap_open_live to the first packet, and the library's size",
        goals: &[
            Goal {
                what: "open to first packet, ratio",
                measure: Measure::Open(OPEN),
                figure: Figure::FirstUs,
                compared: Compared::Ratio,
                must: Must::AtMost(1.3),
            },
            Goal {
                what: "the same with a filter, ratio",
                measure: Measure::Open(OPEN_FILTER),
                figure: Figure::FirstUs,
                compared: Compared::Ratio,
                must: Must::AtMost(2.0),
            },
            Goal {
                what: "size of the library, MB",
                measure: Measure::Size,
                figure: Figure::SizeMb,
                compared: Compared::Alone,
                must: Must::AtMost(1.5),
            },
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(least: f64, median: f64, most: f64) -> Spread {
        Spread {
            median,
            least,
            most,
        }
    }

    #[test]
    fn a_bound_is_for_the_median_and_may_have_to_be_reached() {
        assert!(Must::AtLeast(1.4).holds(spread(1.3, 1.4, 1.5)));
        assert!(!Must::AtMost(0.5).holds(spread(0.4, 0.51, 0.6)));
        let parity = Must::Parity(0.97);
        assert!(parity.holds(spread(0.94, 0.98, 1.01)));
        assert!(parity.holds(spread(1.1, 1.2, 1.3)));
        assert!(!parity.holds(spread(0.94, 0.98, 0.99)));
        assert!(!parity.holds(spread(0.94, 0.96, 1.01)));
    }

    #[test]
    fn names_differ() {
        let mut names: Vec<_> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }
}
