//! Several clusters behind a packet broker: each of them, and sums over their nodes.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::rows;
use crate::coordination::Picture;

/// How many nodes are in each state.
fn states(clusters: &[(String, Picture)]) -> BTreeMap<&'static str, usize> {
    let mut states = BTreeMap::new();
    for row in clusters.iter().flat_map(|(_, it)| rows(&it.view)) {
        *states.entry(row.state()).or_default() += 1;
    }
    states
}

/// The names of the clusters that no coordinator leads.
fn leaderless(clusters: &[(String, Picture)]) -> Vec<&str> {
    let without = clusters.iter().filter(|(_, it)| it.leader.is_none());
    without.map(|(name, _)| name.as_str()).collect()
}

pub(super) fn table(clusters: &[(String, Picture)]) -> String {
    let mut text = String::new();
    for (name, picture) in clusters {
        text += &super::table(name, picture);
        text.push('\n');
    }
    let states = states(clusters);
    let each: Vec<String> = states
        .iter()
        .map(|(state, nodes)| format!("{nodes} {state}"))
        .collect();
    let nodes: usize = states.values().sum();
    let _ = writeln!(
        text,
        "{} clusters, {nodes} nodes: {}",
        clusters.len(),
        each.join(", ")
    );
    let without = leaderless(clusters);
    if !without.is_empty() {
        let _ = writeln!(text, "without a coordinator: {}", without.join(", "));
    }
    text
}

pub(super) fn object(clusters: &[(String, Picture)]) -> Value {
    let each = clusters.iter().map(|(name, it)| super::object(name, it));
    json!({
        "schema": 1,
        "clusters": each.collect::<Vec<_>>(),
        "states": states(clusters),
        "without_coordinator": leaderless(clusters),
    })
}
