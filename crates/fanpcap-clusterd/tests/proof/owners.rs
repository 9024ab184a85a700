//! Finds by `fanpcap cluster` commands which node has each bucket, and waits for changes.

use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fanpcap_clusterd::conf::Conf;
use fanpcap_clusterd::engine;
use fanpcap_select::Selection;
use fanpcap_testkit::await_for;
use serde_json::Value;

use crate::stage::{LOOK, PATIENCE, Stage, id};

/// The id of the node that has each bucket.
pub(crate) type Owners = Vec<Option<String>>;

impl Stage {
    /// The cluster's selection, including its secret.
    pub(crate) fn selection(&self) -> Result<Selection> {
        let conf = Conf::load(&self.scratch.file("cluster.conf"))?;
        let topology = engine::operator_side(&conf)?.look()?.view.topology;
        Ok(topology.context("a topology")?.1.selection)
    }

    /// Returns the owner of each bucket, or `None` while buckets move, and the topology's revision.
    pub(crate) fn owners(&self) -> Result<(Option<Owners>, u64)> {
        let Ok(topology) = self.ask(&["topology", "--json"]) else {
            return Ok((None, 0));
        };
        let revision = topology["revision"].as_u64().context("its number")?;
        if !topology["heirs"].is_null() {
            return Ok((None, revision));
        }
        let nodes = topology["nodes"].as_array().context("nodes")?;
        let of_slot = |slot: &Value| {
            let node = nodes.iter().find(|node| node["slot"] == *slot)?;
            node["node"].as_str().map(str::to_owned)
        };
        let owners = topology["owners"].as_array().context("owners")?;
        Ok((Some(owners.iter().map(of_slot).collect()), revision))
    }

    /// Waits until exactly these nodes have buckets, and all of them capture by the new topology.
    pub(crate) fn await_owners(&self, nodes: &[usize]) -> Result<Owners> {
        let wanted: Vec<String> = nodes.iter().map(|node| id(*node)).collect();
        let is_done = |owners: &Owners| {
            let has = |node: &String| owners.iter().flatten().any(|owner| owner == node);
            let mine =
                |owner: &Option<String>| owner.as_ref().is_some_and(|it| wanted.contains(it));
            wanted.iter().all(has) && owners.iter().all(mine)
        };
        self.await_topology(is_done)
    }

    /// Waits until `wanted` returns `true` for a topology's owners, and all owners capture by this
    /// topology.
    pub(crate) fn await_topology(&self, wanted: impl Fn(&Owners) -> bool) -> Result<Owners> {
        let settled = await_for("the topology", PATIENCE, || {
            thread::sleep(LOOK);
            let (Some(owners), revision) = self.owners()? else {
                return Ok(None);
            };
            // On a busy machine, the coordination engine may reply late.
            let Ok(status) = self.ask(&["status", "--json"]) else {
                return Ok(None);
            };
            let nodes = status["nodes"].as_array().context("nodes")?;
            let captures = |node: &Value| {
                node["buckets"] == 0 || node["acknowledged"].as_u64() == Some(revision)
            };
            let mode = if self.ships {
                "capture"
            } else {
                "distribution"
            };
            for node in nodes.iter().filter(|node| node["address"].is_string()) {
                let setup = [&node["version"], &node["mode"]];
                ensure!(setup == [env!("CARGO_PKG_VERSION"), mode], "{node}");
            }
            let settled = nodes.iter().all(captures) && wanted(&owners);
            Ok(settled.then_some(owners))
        });
        settled.with_context(|| self.output())
    }

    /// Waits until a node has no buckets, or is giving them away. Returns the time.
    pub(crate) fn await_new_owners(&self, node: usize) -> Result<Instant> {
        let id = id(node);
        await_for("new owners", PATIENCE, || {
            thread::sleep(LOOK);
            let Ok(status) = self.ask(&["status", "--json"]) else {
                return Ok(None);
            };
            let nodes = status["nodes"].as_array().context("nodes")?;
            let row = nodes.iter().find(|row| row["node"] == id.as_str());
            let has = row.is_some_and(|row| row["buckets"] != 0);
            Ok((!has).then(Instant::now))
        })
        .with_context(|| self.output())
    }
}
