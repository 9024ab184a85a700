//! `fanpcap cluster topology`: shows which node has which buckets.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use fanpcap_buckets::Owners;
use fanpcap_cluster::{Revision, Topology, unreadable_topology};
use fanpcap_config::report::harmless_text;
use fanpcap_terminal::streams;
use serde_json::{Value, json};

use super::status::look;
use crate::conf::PATH;

/// Shows which node has which buckets
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The settings of the cluster
    #[arg(long, value_name = "FILE", default_value = PATH)]
    config: PathBuf,
    /// Prints one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (_, status) = look(&arguments.config)?;
    if let Some(revision) = status.unreadable {
        bail!(unreadable_topology(revision));
    }
    let topology = status.view.topology;
    let (revision, topology) = topology.context("the cluster has no topology yet")?;
    let text = match arguments.json {
        true => format!("{}\n", object(revision, &topology)),
        false => text(revision, &topology),
    };
    streams::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn slots(owners: &Owners) -> Vec<Option<u8>> {
    owners
        .iter()
        .map(|owner| owner.map(|slot| slot.0))
        .collect()
}

/// The topology without the hash's initial value, because that value is a secret.
fn object(revision: Revision, topology: &Topology) -> Value {
    let nodes = topology.nodes.iter().map(|entry| {
        json!({
            "slot": entry.slot.0,
            "node": entry.node.to_string(),
            "weight": entry.weight,
        })
    });
    let analyzers = topology.analyzers.iter().map(ToString::to_string);
    json!({
        "schema": 1,
        "revision": revision.0,
        "epoch": topology.epoch,
        "key": topology.selection.key.name(),
        "filter": topology.filter.as_ref().map(|it| &it.text),
        "nodes": nodes.collect::<Vec<_>>(),
        "analyzers": analyzers.collect::<Vec<_>>(),
        "owners": slots(&topology.owners),
        "heirs": topology.new_owners.as_deref().map(slots),
    })
}

/// Lists the nodes, then 32 buckets a line: the first bucket's number, and the owners' slots.
fn text(revision: Revision, topology: &Topology) -> String {
    let key = topology.selection.key.name();
    let mut text = format!("topology {revision}, epoch {}, key {key}\n", topology.epoch);
    if let Some(filter) = &topology.filter {
        text += &format!("filter = {}\n", harmless_text(&filter.text));
    }
    for entry in &topology.nodes {
        text += &format!(
            "slot {:3}: node {}, weight {}\n",
            entry.slot.0, entry.node, entry.weight
        );
    }
    let tables = [
        ("owners", Some(&topology.owners)),
        ("heirs", topology.new_owners.as_ref()),
    ];
    for (name, table) in tables {
        let Some(table) = table else {
            continue;
        };
        text += &format!("\n{name}\n");
        for (line, owners) in table.chunks(32).enumerate() {
            let slots = owners
                .iter()
                .map(|owner| owner.map_or(-1, |slot| i16::from(slot.0)));
            let slots: String = slots.map(|slot| format!("{slot:3}")).collect();
            text += &format!("{:4}{slots}\n", line * 32);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use fanpcap_buckets::Slot;
    use fanpcap_cluster::NodeId;
    use fanpcap_cluster::reshape::{ChangeTarget, Member};
    use fanpcap_select::{Filter, Selection};

    use super::*;

    #[test]
    fn a_topology_is_shown_without_its_secret() {
        let members = [1, 2].map(|node| Member {
            node: NodeId(node),
            weight: 1,
        });
        let secret = Selection {
            initial: 987_654_321,
            ..Selection::default()
        };
        let mut topology = ChangeTarget::new(None, &members, secret, &[], None)
            .unwrap()
            .0;
        topology.new_owners = Some(Box::new([Some(Slot(1)); 4096]));
        let shown = object(Revision(7), &topology);
        assert_eq!(
            shown["nodes"][1],
            json!({"slot": 1, "node": "00000002", "weight": 1})
        );
        assert_eq!(shown["owners"].as_array().map(Vec::len), Some(4096));
        assert_eq!(shown["heirs"][0], 1);
        let text = text(Revision(7), &topology);
        assert_eq!(text.lines().count(), 1 + 2 + 2 * (2 + 128));
        assert!(text.contains("\nslot   1: node 00000002, weight 1\n"));
        for shown in [shown.to_string(), text] {
            assert!(!shown.contains("987654321"));
        }
        topology.filter = Some(Filter {
            text: "not port 9100".to_owned(),
            code: Vec::new(),
        });
        let filtered = super::text(Revision(7), &topology);
        assert!(
            filtered.contains("\nfilter = not port 9100\n"),
            "{filtered}"
        );
    }
}
