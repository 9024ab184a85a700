//! A node that joins while packets come.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for;
use fanpcap_testkit::mirror::MONITOR;

use crate::readers::Reader;
use crate::stage::{PATIENCE, Stage, id};

impl Stage {
    /// A new node joins while packets come. The node's tcpdump starts after the selection is
    /// attached to the device. Packets that tcpdump captured earlier would be in no count. The
    /// tcpdump starts before the node gets buckets.
    pub(super) fn join(&mut self) -> Result<usize> {
        let node = self.mirror.add()?;
        self.agents.push(None);
        self.start(node)?;
        await_for("the selection", PATIENCE, || {
            let mut show = Command::new("ip");
            show.args(["-o", "link", "show", "dev", MONITOR]);
            let shown = self.mirror.on_node(node, || Ok(show.output()?))?;
            let shown = String::from_utf8_lossy(&shown.stdout).contains(" xdp");
            Ok(shown.then_some(()))
        })
        .with_context(|| self.output())?;
        let kept = self.kept(node, MONITOR);
        let reader = Reader::start(&self.mirror, node, MONITOR, &kept)?;
        self.readers.push(reader);
        let topology = self.ask(&["topology", "--json"])?;
        let nodes = topology["nodes"].as_array().context("nodes")?;
        let is_there = nodes.iter().any(|it| it["node"] == id(node).as_str());
        ensure!(
            !is_there,
            "{} got buckets before its tcpdump started: the machine is too slow",
            id(node)
        );
        Ok(node)
    }
}
