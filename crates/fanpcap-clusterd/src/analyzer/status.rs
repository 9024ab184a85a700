//! What an analyzer tells of itself: a line, JSON.

use std::fmt::Write as _;
use std::time::Duration;

use fanpcap_cluster::analyzer::Counters;
use fanpcap_cluster::witness::{Account, Span, Verdict};
use serde_json::{Map, Value, json};

/// All that is told.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) account: Account,
    pub(super) counters: Counters,
    pub(super) written: u64,
    pub(super) unwritten: u64,
    pub(super) dropped: u64,
    pub(super) refused: u64,
    /// What was not believed, by the names of the reasons.
    pub(super) refusals: Vec<(&'static str, u64)>,
    /// Figures of what not every analyzer does, with their names.
    pub(super) figures: Vec<(&'static str, u64)>,
    pub(super) trouble: Option<String>,
}

impl Status {
    /// Packets that did not reach the ports of the nodes, as far as it is certain.
    fn mirror(&self) -> i64 {
        self.account.nodes.iter().map(|node| node.mirror).sum()
    }

    /// One line for people.
    pub(super) fn line(&self) -> String {
        let total = &self.account.total;
        let counters = &self.counters;
        let mut line = format!(
            "offered {}, captured {}, lost {} (rings {}, ports {}, export {}, analyzer {}); \
             delivered {}, doubles {}, fenced {}, late {}",
            total.offered,
            total.captured,
            total.lost,
            self.account.ring,
            self.mirror(),
            counters.export_lost,
            self.unwritten,
            counters.delivered,
            counters.doubles,
            counters.fenced,
            counters.late,
        );
        if let Some(apart) = self.account.apart {
            let apart = Duration::from_nanos(apart).as_secs_f64() * 1000.0;
            let _ = write!(line, "; nodes {apart:.1} ms apart");
        }
        let named = self
            .account
            .nodes
            .iter()
            .filter(|node| node.verdict != Verdict::Sound);
        for node in named {
            let _ = write!(line, "; node {}: {}", node.node, node.verdict);
        }
        for (name, count) in self.refusals.iter().filter(|(_, count)| *count > 0) {
            let _ = write!(line, "; refused ({name}): {count}");
        }
        for (name, count) in &self.figures {
            let _ = write!(line, "; {}: {count}", name.replace('_', " "));
        }
        if let Some(trouble) = &self.trouble {
            let _ = write!(line, "; not written: {trouble}");
        }
        line + "\n"
    }

    /// One line of JSON.
    pub(super) fn json(&self) -> String {
        let span = |span: Span| json!({ "least": span.least, "most": span.most });
        let total = &self.account.total;
        let counters = &self.counters;
        let nodes: Vec<Value> = (self.account.nodes.iter())
            .map(|node| {
                json!({
                    "node": node.node.to_string(),
                    "verdict": node.verdict.to_string(),
                    "captured": node.captured,
                    "ring": node.ring,
                    "mirror": node.mirror,
                })
            })
            .collect();
        let object = |all: &[(&str, u64)]| -> Map<String, Value> {
            let pair = |(name, count): &(&str, u64)| ((*name).to_owned(), (*count).into());
            all.iter().map(pair).collect()
        };
        let value = json!({
            "time": self.account.time,
            "offered": span(total.offered),
            "captured": span(total.captured),
            "doubles": span(total.doubles),
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
            "late": counters.late,
            "ahead": counters.ahead,
            "written": self.written,
            "dropped": self.dropped,
            "refused": self.refused + counters.refused_batches,
            "refusals": object(&self.refusals),
            "figures": object(&self.figures),
            "trouble": self.trouble,
            "nodes": nodes,
        });
        format!("{value}\n")
    }
}
