//! A node's metrics, for Prometheus.

use std::path::PathBuf;

use fanpcap_cluster::{NodeId, Revision};
use fanpcap_terminal::exposition::{Family, Kind, Label};

use super::report::Sums;
use crate::shipping::Shipped;
use crate::textfile::{Metric, Textfile, families};

#[derive(Clone, Copy, Debug)]
pub(super) struct AgentCounters {
    /// The topology by which the node captures.
    pub(super) revision: Revision,
    pub(super) sums: Sums,
    /// What became of the node's records; `None` in distribution mode.
    pub(super) shipped: Option<Shipped>,
    /// Control messages that were refused as forged.
    pub(super) forged: u64,
    /// Whether a time service keeps this machine's clock synchronized.
    pub(super) is_synchronized: bool,
    /// How many devices get no packets.
    pub(super) silent: usize,
}

/// Writes a node's metrics to a file.
#[derive(Debug)]
pub(super) struct Metrics {
    file: Textfile,
    labels: Vec<Label>,
}

impl Metrics {
    pub(super) fn new(file: PathBuf, cluster: &str, node: NodeId, device: &str) -> Self {
        let labels = vec![
            ("cluster", cluster.to_owned()),
            ("node", node.to_string()),
            ("device", device.to_owned()),
        ];
        let file = Textfile::new(file, "node");
        Self { file, labels }
    }

    pub(super) fn write(&mut self, agent: &AgentCounters) {
        let families = self.families(agent);
        self.file.write(&families);
    }

    fn families(&self, agent: &AgentCounters) -> Vec<Family> {
        let shipped = agent.shipped.as_ref().map(shipped).into_iter().flatten();
        let counters = counters(agent).into_iter().chain(shipped);
        families(Kind::Gauge, &self.labels, gauges(agent))
            .chain(families(Kind::Counter, &self.labels, counters))
            .collect()
    }
}

fn gauges(agent: &AgentCounters) -> [Metric; 3] {
    [
        (
            "fanpcap_node_topology_revision",
            "The topology by which the node captures.",
            agent.revision.0,
        ),
        (
            "fanpcap_node_clock_synchronized",
            "1 while a time service keeps this machine's clock synchronized.",
            u64::from(agent.is_synchronized),
        ),
        (
            "fanpcap_node_silent_devices",
            "Devices of the node that are down or have no link.",
            agent.silent as u64,
        ),
    ]
}

/// Metrics that only grow, until a new load of the selection sets them to 0.
fn counters(agent: &AgentCounters) -> [Metric; 9] {
    let sums = &agent.sums;
    [
        (
            "fanpcap_node_seen_packets_total",
            "Packets that reached the node's port.",
            sums.seen,
        ),
        (
            "fanpcap_node_captured_packets_total",
            "Packets that the node passed on or wrote into a ring.",
            sums.captured,
        ),
        (
            "fanpcap_node_filtered_packets_total",
            "Packets of this node that the cluster's filter dropped.",
            sums.filtered,
        ),
        (
            "fanpcap_node_elsewhere_packets_total",
            "Packets that other nodes have to capture.",
            sums.elsewhere,
        ),
        (
            "fanpcap_node_ring_lost_packets_total",
            "Packets that this node lost because a ring was full.",
            sums.ring,
        ),
        (
            "fanpcap_node_beacons_total",
            "Beacons of the coordinator that the node received in the mirrored stream.",
            sums.beacons,
        ),
        (
            "fanpcap_node_updates_total",
            "Topology updates of the coordinator that the node received in the mirrored stream.",
            sums.updates,
        ),
        (
            "fanpcap_node_forged_frames_total",
            "Frames in the stream that claim to be the coordinator's and are not.",
            sums.forged,
        ),
        (
            "fanpcap_node_forged_messages_total",
            "Control messages with a wrong key or seal.",
            agent.forged,
        ),
    ]
}

fn shipped(shipped: &Shipped) -> [Metric; 2] {
    [
        (
            "fanpcap_node_shipped_records_total",
            "Records that were sent and, over TCP, acknowledged.",
            shipped.sent,
        ),
        (
            "fanpcap_node_unshipped_records_total",
            "Records that were lost before they were sent.",
            shipped.lost,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use fanpcap_terminal::exposition::text;

    use super::*;
    use crate::textfile::assert_documented;

    #[test]
    fn the_numbers_add_up() {
        let metrics = Metrics::new("/absent".into(), "lab", NodeId(0xa1), "eth1");
        let sums = Sums {
            seen: 100,
            captured: 20,
            elsewhere: 68,
            filtered: 10,
            ring: 2,
            beacons: 5,
            updates: 3,
            forged: 1,
        };
        let shipped = Shipped {
            sent: 29,
            lost: 1,
            ..Shipped::default()
        };
        let mut agent = AgentCounters {
            revision: Revision(7),
            sums,
            shipped: Some(shipped),
            forged: 4,
            is_synchronized: false,
            silent: 1,
        };
        let text = text(&metrics.families(&agent));
        let labels = "{cluster=\"lab\",node=\"000000a1\",device=\"eth1\"}";
        for (name, number) in [
            ("topology_revision", 7),
            ("seen_packets_total", 100),
            ("filtered_packets_total", 10),
            ("elsewhere_packets_total", 68),
            ("beacons_total", 5),
            ("shipped_records_total", 29),
            ("forged_messages_total", 4),
            ("clock_synchronized", 0),
            ("silent_devices", 1),
        ] {
            let line = format!("\nfanpcap_node_{name}{labels} {number}\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert_documented("fanpcap_node_", &metrics.families(&agent));
        agent.shipped = None;
        assert_eq!(metrics.families(&agent).len(), 12);
    }
}
