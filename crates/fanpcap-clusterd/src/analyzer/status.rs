//! An analyzer's status, as a line and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use fanpcap_cluster::NodeId;
use fanpcap_cluster::analyzer::Counters;
use fanpcap_cluster::loss_account::{Account, PortHistory, Span, Verdict};
use serde_json::{Map, Value, json};

use super::clock::rfc3339;
use super::extra_counter::ExtraCounter;

/// The status names nodes whose last report is older than this (ns). Nodes report every second.
const LACKING: u64 = 3_000_000_000;

/// The contents of a status.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) account: Account,
    /// Clocks that differ from the others, and by how many nanoseconds. `None`: this machine's.
    pub(super) clocks: Vec<(Option<NodeId>, i64)>,
    /// Nodes that must report, and for each the nanoseconds since its last report.
    pub(super) ages: Vec<(NodeId, u64)>,
    /// Why the topology is unknown; `None` if it is known.
    pub(super) blind: Option<String>,
    /// For each node, how many captured packets did not reach the analyzer.
    pub(super) missing: BTreeMap<NodeId, u64>,
    pub(super) counters: Counters,
    pub(super) written: u64,
    pub(super) unwritten: u64,
    pub(super) refused: u64,
    /// The numbers of refused connections, with the names of the reasons.
    pub(super) refusals: Vec<(&'static str, u64)>,
    /// Counters of features that not every analyzer uses.
    pub(super) extra_counters: Vec<(ExtraCounter, u64)>,
    pub(super) trouble: Option<String>,
}

impl Status {
    /// Packets that certainly did not reach the ports of the nodes.
    pub(super) fn mirror(&self) -> i64 {
        let mirrors = self.account.nodes.iter().map(|node| node.mirror);
        mirrors.fold(0, i64::saturating_add)
    }

    /// Nodes whose reports are missing, and for each the nanoseconds since its last report.
    fn lacking(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        self.ages.iter().copied().filter(|(_, age)| *age > LACKING)
    }

    /// Records lost between nodes and analyzer: in total, and for each live node with losses.
    fn export(&self) -> String {
        let mut text = self.counters.export_lost.to_string();
        let nodes = self.missing.iter().filter(|(_, lost)| **lost > 0);
        for (number, (node, lost)) in nodes.enumerate() {
            text += if number == 0 { ": " } else { ", " };
            let _ = write!(text, "{node} {lost}");
        }
        text
    }

    /// One line for people.
    pub(super) fn line(&self) -> String {
        let total = &self.account.total;
        let counters = &self.counters;
        let mut line = format!(
            "since {}: offered {}, captured {}, lost {} (rings {}, ports {}, export {}, \
             analyzer {}); delivered {}, doubles {}, fenced {}, foreign {}, unknown {}, late {}, \
             ahead {}",
            rfc3339(self.account.since),
            total.offered,
            total.captured,
            total.lost,
            self.account.ring,
            self.mirror(),
            self.export(),
            self.unwritten,
            counters.delivered,
            counters.doubles,
            counters.fenced,
            counters.foreign,
            counters.unknown,
            counters.late,
            counters.ahead,
        );
        for warning in self.warnings() {
            line += "; ";
            line += &warning;
        }
        for port in self.history() {
            line += "; ";
            line += &port;
        }
        for (name, count) in self.refusals.iter().filter(|(_, count)| *count > 0) {
            let _ = write!(line, "; refused ({name}): {count}");
        }
        for (extra_counter, count) in &self.extra_counters {
            let name = extra_counter.name;
            let _ = write!(line, "; {}: {count}", name.replace('_', " "));
        }
        line + "\n"
    }

    /// Problems that an operator must solve, and how far the nodes' clocks differ.
    pub(super) fn warnings(&self) -> Vec<String> {
        let counters = &self.counters;
        let counts = [
            (self.refused, "messages refused"),
            (counters.refused_batches, "batches refused"),
            (
                counters.crowded_batches,
                "batches refused: an analyzer can't follow more nodes or sessions",
            ),
            (
                counters.unchecked,
                "late records, not checked for doubles: some may be delivered twice",
            ),
            (
                counters.hurried,
                "milliseconds of records waited too briefly to be sorted, because '--memory' is too small",
            ),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let mut warnings: Vec<String> = counts
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let total = &self.account.total;
        if total.captured.is_exact() && total.kept.least > 0 {
            warnings.push(format!(
                "{} packets delivered twice: their records came before the analyzer knew that \
                 their buckets move",
                total.kept.least
            ));
        }
        for (who, ahead) in &self.clocks {
            let who = who.map_or("this machine".to_owned(), |node| format!("node {node}"));
            let seconds = Duration::from_nanos(ahead.unsigned_abs()).as_secs_f64();
            let way = if *ahead < 0 { "behind" } else { "ahead of" };
            warnings.push(format!(
                "{who}: its clock is {seconds:.1} s {way} the others'"
            ));
        }
        warnings.extend(self.lacking().map(|(node, age)| {
            let seconds = Duration::from_nanos(age).as_secs();
            format!("node {node}: no report for {seconds} s")
        }));
        if let Some(apart) = self.account.apart {
            let apart = Duration::from_nanos(apart).as_secs_f64() * 1000.0;
            warnings.push(format!("nodes {apart:.1} ms apart"));
        }
        if let Some(why) = &self.blind {
            warnings.push(format!("follows no topology: {why}"));
        }
        let nodes = self.account.nodes.iter();
        let named = nodes.filter(|node| node.verdict != Verdict::Sound);
        warnings.extend(named.map(|node| format!("node {}: {}", node.node, node.verdict)));
        if let Some(trouble) = &self.trouble {
            warnings.push(format!("not written: {trouble}"));
        }
        warnings
    }

    /// The history of ports. A port in the history may work again now.
    pub(super) fn history(&self) -> impl Iterator<Item = String> + '_ {
        self.account.history.iter().map(|port| {
            format!(
                "history of node {}: {} at worst, from {} until {}, {} packets lost at its port",
                port.node,
                port.worst.name(),
                rfc3339(port.since),
                rfc3339(port.last),
                port.packets
            )
        })
    }

    pub(super) fn json(&self) -> String {
        let span = |span: Span| json!({ "least": span.least, "most": span.most });
        let total = &self.account.total;
        let counters = &self.counters;
        let clocks: Vec<Value> = (self.clocks.iter())
            .map(|(node, ahead)| {
                json!({ "node": node.map(|node| node.to_string()), "ahead": ahead })
            })
            .collect();
        let lacking: Vec<Value> = self
            .lacking()
            .map(|(node, age)| json!({ "node": node.to_string(), "ago": age }))
            .collect();
        let nodes: Vec<Value> = (self.account.nodes.iter())
            .map(|node| {
                json!({
                    "node": node.node.to_string(),
                    "verdict": node.verdict.to_string(),
                    "seen": node.seen,
                    "captured": node.captured,
                    "export": self.missing.get(&node.node),
                    "ring": node.ring,
                    "mirror": node.mirror,
                })
            })
            .collect();
        let refusals: Map<String, Value> = (self.refusals.iter())
            .map(|&(name, count)| (name.to_owned(), count.into()))
            .collect();
        let extra_counters: Map<String, Value> = (self.extra_counters.iter())
            .map(|&(extra_counter, count)| (extra_counter.name.to_owned(), count.into()))
            .collect();
        let value = json!({
            "since": self.account.since,
            "time": self.account.time,
            "offered": span(total.offered),
            "captured": span(total.captured),
            "doubles": span(total.doubles),
            "kept": span(total.kept),
            "lost": span(total.lost),
            "apart": self.account.apart,
            "mirror": self.mirror(),
            "ring": self.account.ring,
            "export": counters.export_lost,
            "analyzer": self.unwritten,
            "received": counters.received,
            "delivered": counters.delivered,
            "removed": counters.doubles,
            "fenced": counters.fenced,
            "foreign": counters.foreign,
            "unknown": counters.unknown,
            "not_taken": span(total.refused),
            "late": counters.late,
            "unchecked": counters.unchecked,
            "ahead": counters.ahead,
            "written": self.written,
            "crowded": counters.crowded_batches,
            "hurried": counters.hurried,
            "clocks": clocks,
            "lacking": lacking,
            "no_topology": self.blind,
            "refused": self.refused + counters.refused_batches,
            "refusals": refusals,
            "figures": extra_counters,
            "trouble": self.trouble,
            "nodes": nodes,
            "history": ports(&self.account.history),
        });
        format!("{value}\n")
    }
}

fn ports(history: &[PortHistory]) -> Vec<Value> {
    let ports = history.iter().map(|port| {
        json!({
            "node": port.node.to_string(),
            "worst": port.worst.name(),
            "since": port.since,
            "last": port.last,
            "packets": port.packets,
        })
    });
    ports.collect()
}
