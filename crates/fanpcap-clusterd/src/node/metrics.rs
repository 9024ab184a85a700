//! What a node counts, for Prometheus.

use std::path::PathBuf;

use fanpcap_cli::metrics::exposition::{Family, Kind, Label, Number, text};
use fanpcap_cli::metrics::file;
use fanpcap_cluster::{NodeId, Revision};

use super::report::Sums;
use super::say;
use crate::shipping::Shipped;

/// Writes a node's metrics to a file for node_exporter's textfile collector.
#[derive(Debug)]
pub(super) struct Metrics {
    file: PathBuf,
    labels: Vec<Label>,
    /// Whether the last write has failed.
    fails: bool,
}

impl Metrics {
    /// Metrics of this node and device.
    pub(super) fn new(file: PathBuf, cluster: &str, node: NodeId, device: &str) -> Self {
        let labels = vec![
            ("cluster", cluster.to_owned()),
            ("node", node.to_string()),
            ("device", device.to_owned()),
        ];
        Self {
            file,
            labels,
            fails: false,
        }
    }

    /// Replaces the file. Says when that begins to fail.
    pub(super) fn write(&mut self, revision: Revision, sums: &Sums, shipped: Option<Shipped>) {
        let written = file::write(&self.file, &text(&self.families(revision, sums, shipped)));
        let fails = written.is_err();
        if let (Err(error), false) = (written, self.fails) {
            say(&format!("{} is not written: {error}", self.file.display()));
        }
        self.fails = fails;
    }

    fn families(&self, revision: Revision, sums: &Sums, shipped: Option<Shipped>) -> Vec<Family> {
        let one = |name, help, kind, number| Family {
            name,
            help,
            kind,
            samples: vec![(self.labels.clone(), Number::Whole(number))],
        };
        let count = |name, help, number| one(name, help, Kind::Counter, number);
        let elsewhere = sums.seen.saturating_sub(sums.captured + sums.ring);
        let mut families = vec![
            one(
                "fanpcap_node_topology_revision",
                "The topology that the node captures by.",
                Kind::Gauge,
                revision.0,
            ),
            count(
                "fanpcap_node_seen_packets_total",
                "Packets that reached the node's port.",
                sums.seen,
            ),
            count(
                "fanpcap_node_captured_packets_total",
                "Packets that the node passed on or wrote into a ring.",
                sums.captured,
            ),
            count(
                "fanpcap_node_elsewhere_packets_total",
                "Packets that other nodes have to capture.",
                elsewhere,
            ),
            count(
                "fanpcap_node_ring_lost_packets_total",
                "Packets of this node that found no room in a ring.",
                sums.ring,
            ),
            count(
                "fanpcap_node_forged_frames_total",
                "Frames in the stream that claim to be the coordinator's and are not.",
                sums.forged,
            ),
        ];
        if let Some(shipped) = shipped {
            families.extend([
                count(
                    "fanpcap_node_shipped_records_total",
                    "Records that were sent; over TCP, acknowledged.",
                    shipped.sent,
                ),
                count(
                    "fanpcap_node_unshipped_records_total",
                    "Records that were lost before they were sent.",
                    shipped.lost,
                ),
            ]);
        }
        families
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_add_up() {
        let metrics = Metrics::new("/absent".into(), "lab", NodeId(0xa1), "eth1");
        let sums = Sums {
            seen: 100,
            captured: 30,
            ring: 2,
            forged: 1,
        };
        let shipped = Shipped {
            sent: 29,
            lost: 1,
            ..Shipped::default()
        };
        let text = text(&metrics.families(Revision(7), &sums, Some(shipped)));
        let labels = "{cluster=\"lab\",node=\"000000a1\",device=\"eth1\"}";
        for (name, number) in [
            ("topology_revision", 7),
            ("seen_packets_total", 100),
            ("elsewhere_packets_total", 68),
            ("shipped_records_total", 29),
        ] {
            let line = format!("\nfanpcap_node_{name}{labels} {number}\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert!(metrics.families(Revision(7), &sums, None).len() == 6);
    }
}
