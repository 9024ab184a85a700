//! `fanpcap cluster status`: shows a cluster's nodes and their buckets.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use fanpcap_cluster::{ClusterStatus, LiveNode, NodeId, Phase, Revision, Setup, Topology, View};
use fanpcap_config::report::harmless_text;
use fanpcap_terminal::streams;
use serde_json::{Map, Value, json};

use self::sums::Sums;
use super::waiting::WaitingNotice;
use crate::conf::{Conf, PATH};
use crate::engine;
use crate::fixed::UNKNOWN;

pub(crate) mod setup;
mod sums;
#[cfg(test)]
mod tests;

/// Shows a cluster's coordinator, topology and nodes
///
/// With several --config, shows each cluster, and the sums over all clusters.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The settings of the cluster. Repeat this option for each further cluster
    #[arg(long, value_name = "FILE", default_value = PATH)]
    config: Vec<PathBuf>,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let [file] = &arguments.config[..] {
        let (cluster, status) = look(file)?;
        let text = match arguments.json {
            true => format!("{}\n", object(&cluster, &status)),
            false => table(&cluster, &status),
        };
        streams::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let sums = Sums::of(&arguments.config);
    let text = match arguments.json {
        true => format!("{}\n", sums.object()),
        false => sums.table(),
    };
    streams::print(&text)?;
    Ok(match sums.unseen.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// A cluster's name, and its status as far as it can be read.
pub(super) fn look(file: &Path) -> Result<(String, ClusterStatus)> {
    let conf = Conf::load(file)?;
    let _notice = WaitingNotice::of(&conf);
    let status = engine::operator_side(&conf)?.look()?;
    Ok((conf.cluster, status))
}

/// What an operator should know or do, one sentence each.
fn notes(status: &ClusterStatus) -> Vec<String> {
    let rows = rows(&status.view);
    let has_buckets =
        |row: &&Row| row.live.is_none() && row.weight.is_some_and(|weight| weight > 0);
    let is_fixed = status.notes.iter().any(|note| note == UNKNOWN);
    let silent = rows
        .iter()
        .filter(|_| !is_fixed)
        .filter(has_buckets)
        .filter(|row| !row.is_drained);
    let silent = silent.map(|row| {
        let node = row.node;
        format!(
            "node {node} is silent and has buckets: if it is dead, packets of these buckets are \
             missed, and 'fanpcap cluster drain {node}' gives the buckets to other nodes"
        )
    });
    let topology = status.view.topology.as_ref();
    let is_stable = topology.is_some_and(|(_, it)| it.phase() == Phase::Stable);
    let apart = rows.iter().filter_map(|row| match row.state() {
        "ahead" => Some(row.ahead()),
        "behind" if is_stable => Some(row.behind()),
        _ => None,
    });
    let by = topology.map(|(_, it)| it.selection.key);
    let setups = setup::notes(&rows, by);
    let desired = &status.view.desired;
    let named: BTreeSet<NodeId> = desired
        .drained
        .iter()
        .chain(desired.weights.keys())
        .copied()
        .collect();
    let is_here = |node: &NodeId| rows.iter().any(|row| row.node == *node);
    let gone = named.into_iter().filter(|node| !is_here(node));
    let gone = gone.map(|node| {
        format!(
            "node {node} is not in the cluster, and an earlier command for it still has effect: \
             undo this by 'fanpcap cluster drain {node} --undo' or 'fanpcap cluster weight {node}'"
        )
    });
    status
        .notes
        .iter()
        .cloned()
        .chain(silent)
        .chain(apart)
        .chain(setups)
        .chain(gone)
        .collect()
}

/// The known facts about a node.
pub(crate) struct Row {
    pub(crate) node: NodeId,
    live: Option<LiveNode>,
    /// The node's weight in the topology; `None` if the topology does not contain the node.
    weight: Option<u16>,
    /// Buckets that only this node owns.
    pub(crate) buckets: usize,
    /// Buckets that the node captures together with another node while the buckets move.
    moving: usize,
    is_drained: bool,
    revision: Option<Revision>,
}

/// All nodes that are alive or in the topology, in the order of their ids.
pub(crate) fn rows(view: &View) -> Vec<Row> {
    let topology = view.topology.as_ref();
    let live = view.live.iter().map(|live| live.announcement.node);
    let entries = topology.map_or(&[][..], |(_, topology)| &topology.nodes);
    let nodes: BTreeSet<NodeId> = live.chain(entries.iter().map(|entry| entry.node)).collect();
    let row = |node: NodeId| {
        let live = view.live.iter().find(|live| live.announcement.node == node);
        let entry = entries.iter().find(|entry| entry.node == node);
        let count = |phase| {
            let captures = |topology: &Topology, bucket| {
                entry.is_some_and(|entry| topology.captures(entry.slot, bucket) == Some(phase))
            };
            let buckets = topology.map_or(0, |(_, topology)| topology.owners.len());
            let mine = |bucket: &usize| topology.is_some_and(|(_, it)| captures(it, *bucket));
            (0..buckets).filter(mine).count()
        };
        let revision = topology.map(|(revision, _)| *revision);
        Row {
            node,
            live: live.copied(),
            weight: entry.map(|entry| entry.weight),
            buckets: count(Phase::Stable),
            moving: count(Phase::Union),
            is_drained: view.desired.drained.contains(&node),
            revision,
        }
    };
    nodes.into_iter().map(row).collect()
}

impl Row {
    /// The node's state, in one word.
    pub(crate) fn state(&self) -> &'static str {
        let Some(live) = self.live else {
            return "silent";
        };
        let ahead = self.revision.is_some() && live.acknowledged > self.revision;
        match self.weight {
            _ if ahead => "ahead",
            _ if self.is_drained => "drained",
            None => "waiting",
            Some(_) if live.acknowledged == self.revision => "current",
            Some(_) => "behind",
        }
    }

    /// The node's version and settings; `None` if the node is silent or has an earlier version.
    pub(crate) fn setup(&self) -> Option<Setup> {
        self.live?.announcement.setup
    }

    fn behind(&self) -> String {
        format!(
            "node {} is behind the newest topology: if it stays behind, its log says why",
            self.node
        )
    }

    fn ahead(&self) -> String {
        let newest = self.live.and_then(|live| live.acknowledged);
        format!(
            "node {} captures by topology {}, and refuses older ones: the coordination engine was \
             restored from an old copy, or was replaced. If this will not be undone, stop the \
             node, remove its selection by 'fanpcap node DEV --detach', and start it again",
            self.node,
            newest.unwrap_or_default()
        )
    }
}

fn phase(topology: &Topology) -> &'static str {
    match topology.phase() {
        Phase::Stable => "stable",
        Phase::Union => "union",
    }
}

fn table(cluster: &str, status: &ClusterStatus) -> String {
    let leader = harmless_text(status.leader.as_deref().unwrap_or("none"));
    let mut text = format!("cluster {cluster}, coordinator {leader}\n");
    let topology = status.view.topology.as_ref();
    let none = match status.unreadable {
        Some(revision) => format!("topology {revision} of a later version\n"),
        None => "no topology yet\n".to_owned(),
    };
    text += &topology.map_or(none, |(revision, topology)| {
        let filter = topology.filter.as_ref();
        format!(
            "topology {revision}, epoch {}, {}, select = {}\n{}",
            topology.epoch,
            phase(topology),
            topology.selection.key.name(),
            filter.map_or_else(String::new, |it| format!(
                "filter = {}\n",
                harmless_text(&it.text)
            ))
        )
    });
    let _ = writeln!(
        text,
        "\nnode      state    weight  buckets  moving  mode          version  address"
    );
    for row in rows(&status.view) {
        let weight = row
            .weight
            .map_or("-".to_owned(), |weight| weight.to_string());
        let address = row.live.map(|live| live.announcement.address);
        let address = address.map_or("-".to_owned(), |address| address.to_string());
        let Row {
            node,
            buckets,
            moving,
            ..
        } = row;
        let state = row.state();
        let setup = row.setup();
        let unknown = || "-".to_owned();
        let mode = setup.as_ref().map_or_else(unknown, setup::mode);
        let version = setup.map_or_else(unknown, |it| it.version.to_string());
        let _ = writeln!(
            text,
            "{node}  {state:<7}  {weight:>6}  {buckets:>7}  {moving:>6}  {mode:<12}  {version:<7}  \
             {address}"
        );
    }
    // Repeats, and messages that are not known to be new, are usual after a restart.
    let is_usual = |cause: &str| ["replay", "stale"].contains(&cause);
    for (cause, count) in status.refused.iter().filter(|(cause, _)| !is_usual(cause)) {
        let _ = writeln!(text, "\ncontrol messages refused ({cause}): {count}");
    }
    for note in notes(status) {
        let _ = writeln!(text, "\n{}", harmless_text(&note));
    }
    text
}

fn object(cluster: &str, status: &ClusterStatus) -> Value {
    let topology = status.view.topology.as_ref().map(|(revision, topology)| {
        json!({
            "revision": revision.0,
            "epoch": topology.epoch,
            "phase": phase(topology),
            "select": topology.selection.key.name(),
            "filter": topology.filter.as_ref().map(|it| &it.text),
        })
    });
    let nodes = rows(&status.view).into_iter().map(|row| {
        let setup = row.setup();
        json!({
            "node": row.node.to_string(),
            "state": row.state(),
            "weight": row.weight,
            "buckets": row.buckets,
            "moving": row.moving,
            "drained": row.is_drained,
            "acknowledged": row.live.and_then(|live| live.acknowledged).map(|it| it.0),
            "address": row.live.map(|live| live.announcement.address.to_string()),
            "version": setup.map(|it| it.version.to_string()),
            "mode": setup.map(|it| if it.header.is_some() { "capture" } else { "distribution" }),
            "header": setup.and_then(|it| it.header),
            "select": setup.map(|it| it.key.name()),
            "devices": setup.and_then(|it| it.devices),
        })
    });
    let refused: Map<String, Value> = (status.refused.iter())
        .map(|&(cause, count)| (cause.to_owned(), count.into()))
        .collect();
    json!({
        "schema": 1,
        "cluster": cluster,
        "coordinator": status.leader,
        "topology": topology,
        "nodes": nodes.collect::<Vec<_>>(),
        "notes": notes(status),
        "refused": refused,
    })
}
