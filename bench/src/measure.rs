//! The measures of `measures.json`: their columns, and the code that runs for each column.

mod compile;
mod idle;
mod unread;
mod trials;
mod latency;
mod library;
mod memory;
mod queues;
mod polled;
mod filled;
mod nodes;
mod headers;
mod members;
mod peers;
mod tshark;
mod identification;

use std::sync::LazyLock;

use anyhow::{Result, bail};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::bench::Bench;
use crate::column::{Column, Need, Receivers};
use crate::figure::{Figure, Sample};
use crate::libraries::Side;
use crate::outside;
use crate::quota;
use crate::reader::Settings;
use crate::refusal::Refusal;
use filled::Filled;
use latency::Latency;
use memory::Memory;
use nodes::Nodes;
use peers::Peers;
use polled::Polled;
use trials::Trials;

/// Measures that have the same columns.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct Series {
    /// What must be available for the series to be measured.
    #[serde(default)]
    needs: Vec<Need>,
    columns: Vec<Column>,
    /// The figures that the table shows; all figures if empty.
    #[serde(default)]
    shown: Vec<Figure>,
    /// Whether every run has the same figures.
    #[serde(default)]
    constant: bool,
    measures: Vec<Single>,
}

/// One measure of a series.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
struct Single {
    name: String,
    /// A comment in measures.json, which the bench does not use.
    #[serde(rename = "why")]
    _why: Option<IgnoredAny>,
    kind: Kind,
}

/// What a measure does for each of its columns.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", bound(deserialize = "'de: 'static"))]
enum Kind {
    Trials(Trials),
    Latency(Latency),
    /// Handles are opened with these settings.
    Open(Settings),
    Size,
    Memory(Memory),
    Queues,
    Idle,
    Polled(Polled),
    Filled(Filled),
    Compile,
    Nodes(Nodes),
    /// Frames at this many times the rate that one node can handle.
    Headers(u32),
    /// A group with this many members at the start.
    Members(usize),
    Peers(Peers),
    Tshark,
    Identifications,
}

/// All series.
static SERIES: LazyLock<Vec<Series>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../measures.json")).expect("measures.json is well formed")
});

/// One measure, and the series whose columns it compares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    series: &'static Series,
    single: &'static Single,
}

impl Measure {
    /// All measures.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        SERIES.iter().flat_map(|series| {
            let measures = series.measures.iter();
            measures.map(move |single| Self { series, single })
        })
    }

    /// The measure with this name.
    pub(crate) fn named(name: &str) -> Self {
        let found = Self::all().find(|measure| measure.single.name == name);
        found.unwrap_or_else(|| panic!("no measure {name:?} in measures.json"))
    }

    /// Name in the table. Measures with the same name are the same measure, and are taken once.
    pub(crate) fn name(self) -> &'static str {
        let is_of_captures = matches!(self.single.kind, Kind::Identifications)
            && identification::captures().is_some();
        if is_of_captures {
            "identifications of the packets in FANPCAP_CAPTURES"
        } else {
            &self.single.name
        }
    }

    /// The columns. Only runs of the same round are compared.
    pub(crate) fn columns(self) -> &'static [Column] {
        &self.series.columns
    }

    /// The figures that the table shows; all figures if empty.
    pub(crate) fn shown(self) -> &'static [Figure] {
        &self.series.shown
    }

    /// Whether every run has the same figures.
    pub(crate) fn constant(self) -> bool {
        self.series.constant
    }

    /// Why a column can't be measured here, for example because an application is not installed.
    pub(crate) fn absent(self, bench: &Bench, column: &Column) -> Result<Option<String>> {
        if let Kind::Trials(trials) = &self.single.kind {
            let why = trials.absent(bench);
            if why.is_some() {
                return Ok(why);
            }
        }
        for need in self.series.needs.iter().chain(&column.needs) {
            let why = missing(*need, bench)?;
            if why.is_some() {
                return Ok(why);
            }
        }
        Ok(None)
    }

    /// Runs a column once; a refusal says why the run does not count.
    pub(crate) fn run(self, bench: &Bench, column: &Column) -> Result<Result<Sample, Refusal>> {
        let key = column.key;
        match (&self.single.kind, &column.receivers) {
            (Kind::Polled(polled), Receivers::Links(layouts)) => polled.run(bench, layouts),
            (Kind::Polled(_), _) => bail!("{key} has no links"),
            (Kind::Trials(trials), _) => {
                let shows_share = self.shown().contains(&Figure::CapturedShare);
                trials.run(bench, column, shows_share)
            }
            (Kind::Latency(latency), _) => latency.run(bench, Side::of(key)),
            (Kind::Open(settings), _) => library::open(*settings, bench, Side::of(key)).map(Ok),
            (Kind::Size, _) => library::size(bench).map(Ok),
            (Kind::Memory(memory), _) => memory.run(bench, Side::of(key)).map(Ok),
            (Kind::Queues, _) => queues::run(bench, column),
            (Kind::Idle, _) => idle::run(bench, Side::of(key)).map(Ok),
            (Kind::Filled(filled), _) => filled.run(bench, column),
            (Kind::Compile, _) => compile::run(bench).map(Ok),
            (Kind::Nodes(nodes), _) => nodes.run(bench, key),
            (Kind::Headers(times), _) => headers::run(*times, bench, key),
            (Kind::Members(count), _) => members::run(*count, bench, key).map(Ok),
            (Kind::Peers(peers), _) => peers.run(bench, key),
            (Kind::Tshark, _) => tshark::run(bench, key),
            (Kind::Identifications, _) => identification::run(key).map(Ok),
        }
    }
}

/// Why the machine lacks something that a measure needs; `None` if the machine has it.
fn missing(need: Need, bench: &Bench) -> Result<Option<String>> {
    Ok(match need {
        Need::LiveFrames => unread::no_live_frames(bench),
        Need::Other => {
            let is_missing = bench.libraries().other.is_none();
            is_missing.then(|| "no other build: see --other".to_owned())
        }
        Need::OwnQueues => queues::no_own_queues(bench),
        Need::Command => {
            let is_missing = bench.libraries().command().is_none();
            is_missing.then(|| "no command fanpcap beside our library".to_owned())
        }
        Need::DpdkPlugin => {
            let is_missing = bench.libraries().dpdk_plugin().is_none();
            is_missing.then(|| "no plugin for DPDK: make dpdk".to_owned())
        }
        Need::Quota => quota::absent(),
        Need::Installed(program, package) => outside::missing(program, package),
        Need::TestpmdOnPacket => peers::no_testpmd_on_packet(bench),
        Need::TestpmdOnXdp => peers::no_testpmd_on_xdp(bench)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let mut names: Vec<_> = Measure::all().map(|measure| &measure.single.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Measure::all().count());
    }

    #[test]
    fn links_are_the_columns_of_polled_measures() {
        for measure in Measure::all() {
            let is_polled = matches!(measure.single.kind, Kind::Polled(_));
            for column in measure.columns() {
                let has_links = matches!(column.receivers, Receivers::Links(_));
                assert_eq!(has_links, is_polled, "{}, {}", measure.name(), column.key);
            }
        }
    }
}
