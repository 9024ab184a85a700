//! The status of each of several clusters behind a packet broker, and sums over all clusters.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::thread::{self, ScopedJoinHandle};

use fanpcap_cluster::ClusterStatus;
use fanpcap_terminal::streams;
use serde_json::{Value, json};

use super::{look, rows};

#[derive(Default)]
pub(super) struct Sums {
    pub(super) clusters: Vec<(String, ClusterStatus)>,
    pub(super) unseen: Vec<UnseenCluster>,
}

/// A cluster whose status can't be read.
pub(super) struct UnseenCluster {
    pub(super) config: String,
    pub(super) error: String,
}

impl Sums {
    /// Asks all clusters at once, because it waits ten seconds for a cluster that does not reply.
    pub(super) fn of(files: &[PathBuf]) -> Self {
        let seen = thread::scope(|scope| {
            let asked = files.iter().map(|file| scope.spawn(move || look(file)));
            let asked: Vec<_> = asked.collect();
            let joined = asked.into_iter().map(ScopedJoinHandle::join);
            let joined = joined.map(|seen| seen.unwrap_or_else(|panic| resume_unwind(panic)));
            joined.collect::<Vec<_>>()
        });
        let mut sums = Self::default();
        for (file, seen) in files.iter().zip(seen) {
            match seen {
                Ok(seen) => sums.clusters.push(seen),
                Err(error) => sums.unseen.push(UnseenCluster {
                    config: file.display().to_string(),
                    error: streams::words(&error),
                }),
            }
        }
        sums
    }

    /// How many nodes are in each state, over all clusters.
    fn states(&self) -> BTreeMap<&'static str, usize> {
        let mut states = BTreeMap::new();
        for row in self.clusters.iter().flat_map(|(_, it)| rows(&it.view)) {
            *states.entry(row.state()).or_default() += 1;
        }
        states
    }

    fn leaderless(&self) -> Vec<&str> {
        let without = self.clusters.iter().filter(|(_, it)| it.leader.is_none());
        without.map(|(name, _)| name.as_str()).collect()
    }

    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        for (name, status) in &self.clusters {
            text += &super::table(name, status);
            text.push('\n');
        }
        let states = self.states();
        let each: Vec<String> = states
            .iter()
            .map(|(state, nodes)| format!("{nodes} {state}"))
            .collect();
        let nodes: usize = states.values().sum();
        let unseen = match self.unseen.len() {
            0 => String::new(),
            unseen => format!(", {unseen} not seen"),
        };
        let _ = writeln!(
            text,
            "{} clusters{unseen}, {nodes} nodes: {}",
            self.clusters.len() + self.unseen.len(),
            each.join(", ")
        );
        let without = self.leaderless();
        if !without.is_empty() {
            let _ = writeln!(text, "without a coordinator: {}", without.join(", "));
        }
        for UnseenCluster { config, error } in &self.unseen {
            let _ = writeln!(text, "not seen: {config}: {error}");
        }
        text
    }

    pub(super) fn object(&self) -> Value {
        let each = self.clusters.iter();
        let each = each.map(|(name, it)| super::object(name, it));
        let unseen = self.unseen.iter();
        let unseen = unseen.map(|it| json!({"config": it.config, "error": it.error}));
        json!({
            "schema": 1,
            "clusters": each.collect::<Vec<_>>(),
            "states": self.states(),
            "without_coordinator": self.leaderless(),
            "unseen": unseen.collect::<Vec<_>>(),
        })
    }
}
