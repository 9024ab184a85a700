//! The capture cluster of this machine, as reported by the cluster's own program.

use std::path::Path;

use anyhow::{Context, Result};
use fanpcap_config::report::harmless_text;
use fanpcap_external::ExternalCommand;
use fanpcap_linux::bpf;
use fanpcap_linux::netlink::link;
use serde::{Deserialize, Serialize};

use super::finding::{Finding, PrintedFinding};

/// The settings of a cluster.
const CONF: &str = "/etc/fanpcap/cluster.conf";

/// The prefix of the names of the XDP programs by which cluster nodes select packets.
const SELECTION: &str = "fanpcap_select";

/// The findings that the cluster's program may print.
pub(super) const NAMES: [&str; 8] = [
    "cluster-conf",
    "cluster-file",
    "monitored-device",
    "filter-misses-tags",
    "silent-device",
    "selection-without-agent",
    "no-coordinator",
    "clock-adrift",
];

/// A node of the cluster, and the packets that it selects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Node {
    /// The monitored device.
    pub(super) device: String,
    pub(super) cluster: String,
    /// The field by which packets are selected, as in cluster.conf.
    pub(super) select: String,
    /// The selection in words, with the purpose that it suits.
    pub(super) gets: String,
}

/// What the cluster's program reports about this machine.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    pub(super) findings: Vec<Finding>,
    /// The node that runs here.
    pub(super) node: Option<Node>,
}

/// What the cluster's program prints.
#[derive(Deserialize)]
struct ClusterPage {
    findings: Vec<PrintedFinding>,
    // The cluster program of an older build prints no node.
    #[serde(default)]
    node: Option<Node>,
}

/// Asks the cluster's program about this machine. If the program is not installed, or if the
/// machine has neither a cluster.conf nor a node's XDP program, returns an empty answer without
/// asking.
///
/// # Errors
///
/// The program can't be run, or prints another format.
pub(super) fn ask() -> Result<Cluster> {
    let Some(program) = ExternalCommand::of("cluster").filter(|it| it.is_installed()) else {
        return Ok(Cluster::default());
    };
    if !Path::new(CONF).exists() && !has_selection() {
        return Ok(Cluster::default());
    }
    let done = program.output(&["check", "--doctor", CONF])?;
    read(&done.stdout).with_context(|| {
        let complaint = String::from_utf8_lossy(&done.stderr);
        let complaint = harmless_text(complaint.trim());
        format!(
            "looking at the capture cluster: {}: {complaint}",
            done.status
        )
    })
}

/// Whether a device has an XDP program by which a cluster node selects packets.
fn has_selection() -> bool {
    let links = link::links().unwrap_or_default();
    let programs = links.iter().filter_map(|link| link.xdp);
    let names = programs.filter_map(|xdp| bpf::program_name(xdp.program).ok());
    names.into_iter().any(|name| name.starts_with(SELECTION))
}

fn read(text: &[u8]) -> Result<Cluster> {
    let page: ClusterPage = serde_json::from_slice(text)?;
    let own = page.findings.into_iter().map(|told| {
        let name = harmless_text(&told.name);
        let finding = told.own(&NAMES);
        finding.with_context(|| format!("no finding has the name {name:?}"))
    });
    Ok(Cluster {
        findings: own.collect::<Result<_>>()?,
        node: page.node.map(Node::harmless),
    })
}

impl Node {
    /// A sentence about the node and the packets that it selects.
    pub(super) fn sentence(&self) -> String {
        let Self {
            device,
            cluster,
            select,
            gets,
        } = self;
        format!("{device} is a node of cluster {cluster}, select = {select}: {gets}.")
    }

    /// The node, without characters that act on a terminal.
    fn harmless(self) -> Self {
        Self {
            device: harmless_text(&self.device),
            cluster: harmless_text(&self.cluster),
            select: harmless_text(&self.select),
            gets: harmless_text(&self.gets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str) -> String {
        serde_json::json!({"findings": [
            {"name": name, "effect": "loses", "place": "eth1", "what": "a", "why": "b", "fix": "c"}
        ]})
        .to_string()
    }

    #[test]
    fn what_the_program_says_is_taken_by_name() {
        for name in NAMES {
            let told = read(page(name).as_bytes()).unwrap();
            assert_eq!(told.node, None);
            let found = told.findings;
            assert_eq!((found.len(), found[0].name, &*found[0].fix), (1, name, "c"));
        }
        assert_eq!(read(b"{\"findings\":[]}").unwrap().findings, []);
    }

    #[test]
    fn what_the_node_gets_is_told_in_a_sentence() {
        let said = serde_json::json!({"findings": [], "node": {
            "device": "mon", "cluster": "a\u{1b}[31m", "select": "flow", "gets": "whole connections"
        }});
        let told = read(said.to_string().as_bytes()).unwrap();
        assert_eq!(
            told.node.unwrap().sentence(),
            "mon is a node of cluster a?[31m, select = flow: whole connections."
        );
    }

    #[test]
    fn what_is_none_of_its_findings_is_refused() {
        let error = read(page("down").as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "no finding has the name \"down\"");
        assert!(read(b"").is_err() && read(b"{}").is_err());
    }
}
