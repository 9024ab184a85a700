//! An analyzer's metrics, for Prometheus, and its account of each bucket.

use std::path::PathBuf;
use std::time::Duration;

use fanpcap_cluster::NodeId;
use fanpcap_cluster::loss_account::{NodeAccount, Verdict};
use fanpcap_terminal::exposition::{Family, Kind, Label, Number};

use super::by_bucket;
use super::status::Status;
use crate::textfile::{self, Metric, Textfile, family};

/// Writes an analyzer's metrics to a file, and its account of each bucket to another file.
pub(super) struct Metrics {
    file: Option<Textfile>,
    buckets: Option<Textfile>,
    cluster: Vec<Label>,
}

impl Metrics {
    /// Writes this cluster's metrics to the first file, and its account by bucket to the second.
    pub(super) fn new(files: [Option<PathBuf>; 2], cluster: &str) -> Self {
        let [file, buckets] = files.map(|file| Some(Textfile::new(file?, "analyzer")));
        Self {
            file,
            buckets,
            cluster: vec![("cluster", cluster.to_owned())],
        }
    }

    pub(super) fn write(&mut self, status: &Status) {
        let families = self.families(status);
        if let Some(file) = &mut self.file {
            file.write(&families);
        }
        if let Some(file) = &mut self.buckets {
            file.write_text(&by_bucket::table(&status.account));
        }
    }

    fn families(&self, status: &Status) -> Vec<Family> {
        let mut families = self.accounts(status);
        families.extend(textfile::families(
            Kind::Counter,
            &self.cluster,
            counts(status),
        ));
        families.push(self.refusals(status));
        let extra_counters = status.extra_counters.iter();
        families.extend(extra_counters.map(|&(of, count)| {
            let count = Number::Whole(count);
            family(of.metric, of.help, of.kind, &self.cluster, count)
        }));
        families.extend(self.of_nodes(status));
        families
    }

    /// Refused connections and messages, by reason.
    fn refusals(&self, status: &Status) -> Family {
        let sample = |&(reason, count): &(&str, u64)| {
            let mut labels = self.cluster.clone();
            labels.push(("reason", reason.to_owned()));
            (labels, Number::Whole(count))
        };
        Family {
            name: "fanpcap_analyzer_unbelieved_messages_total",
            help: "Connections that were ended, by reason.",
            kind: Kind::Counter,
            samples: status.refusals.iter().map(sample).collect(),
        }
    }

    /// The account's lower and upper bounds of packets. A bound may shrink when reports come.
    fn accounts(&self, status: &Status) -> Vec<Family> {
        let gauge = |name, help, value| family(name, help, Kind::Gauge, &self.cluster, value);
        let bounds = bounds(status).into_iter();
        let bounds = bounds.map(|(name, help, value)| gauge(name, help, Number::Signed(value)));
        let mut families: Vec<Family> = bounds.collect();
        families.extend(status.account.apart.map(|apart| {
            gauge(
                "fanpcap_analyzer_nodes_apart_seconds",
                "The longest time between two nodes' sightings of the same beacon.",
                Number::Seconds(Duration::from_nanos(apart).as_secs_f64()),
            )
        }));
        families
    }

    fn of_nodes(&self, status: &Status) -> Vec<Family> {
        let nodes = &status.account.nodes;
        let export = |node: &NodeAccount| status.missing.get(&node.node).copied().unwrap_or(0);
        let each = |number: &dyn Fn(&NodeAccount) -> Number| {
            let sample = |node: &NodeAccount| {
                let mut labels = self.cluster.clone();
                labels.push(("node", node.node.to_string()));
                (labels, number(node))
            };
            nodes.iter().map(sample).collect()
        };
        let age = |&(node, age): &(NodeId, u64)| {
            let mut labels = self.cluster.clone();
            labels.push(("node", node.to_string()));
            let age = Duration::from_nanos(age).as_secs_f64();
            (labels, Number::Seconds(age))
        };
        vec![
            Family {
                name: "fanpcap_analyzer_node_report_age_seconds",
                help: "Time since the node's last report.",
                kind: Kind::Gauge,
                samples: status.ages.iter().map(age).collect(),
            },
            Family {
                name: "fanpcap_analyzer_node_sound",
                help: "1 if the node's port gets the packets that other nodes' ports get.",
                kind: Kind::Gauge,
                samples: each(&|it| Number::Whole(u64::from(it.verdict == Verdict::Sound))),
            },
            Family {
                name: "fanpcap_analyzer_node_mirror_loss_ppm",
                help: "How many of a million packets a lossy port did not give to its node, in the \
                       last five minutes.",
                kind: Kind::Gauge,
                samples: each(&|it| Number::Whole(it.verdict.lost_parts().into())),
            },
            Family {
                name: "fanpcap_analyzer_node_mirror_lost_packets",
                help: "Packets that did not reach the node's port, counted when traffic stops.",
                kind: Kind::Gauge,
                samples: each(&|it| Number::Signed(it.mirror)),
            },
            Family {
                name: "fanpcap_analyzer_node_captured_packets_total",
                help: "Packets that the node captured, according to its reports.",
                kind: Kind::Counter,
                samples: each(&|it| Number::Whole(it.captured)),
            },
            Family {
                name: "fanpcap_analyzer_node_ring_lost_packets_total",
                help: "Packets that the node lost because its ring was full, by its own report.",
                kind: Kind::Counter,
                samples: each(&|it| Number::Whole(it.ring)),
            },
            Family {
                name: "fanpcap_analyzer_node_export_lost_packets_total",
                help: "Packets that the node captured, but that did not reach the analyzer.",
                kind: Kind::Counter,
                samples: each(&|it| Number::Whole(export(it))),
            },
        ]
    }
}

fn bounds(status: &Status) -> [(&'static str, &'static str, i64); 8] {
    let total = &status.account.total;
    [
        (
            "fanpcap_analyzer_offered_packets_least",
            "Lower bound of the packets that reached the port of a node.",
            total.offered.least,
        ),
        (
            "fanpcap_analyzer_offered_packets_most",
            "Upper bound of the packets that reached the port of a node.",
            total.offered.most,
        ),
        (
            "fanpcap_analyzer_lost_packets_least",
            "Lower bound of the packets that no node captured.",
            total.lost.least,
        ),
        (
            "fanpcap_analyzer_lost_packets_most",
            "Upper bound of the packets that no node captured.",
            total.lost.most,
        ),
        (
            "fanpcap_analyzer_doubled_packets_least",
            "Lower bound of the packets that a second node captured.",
            total.doubles.least,
        ),
        (
            "fanpcap_analyzer_doubled_packets_most",
            "Upper bound of the packets that a second node captured.",
            total.doubles.most,
        ),
        (
            "fanpcap_analyzer_mirror_lost_packets",
            "Packets that the ports of live nodes did not give to these nodes.",
            status.mirror(),
        ),
        (
            "fanpcap_analyzer_write_fails",
            "1 while packets can't be written.",
            i64::from(status.trouble.is_some()),
        ),
    ]
}

/// Numbers that only grow while the analyzer runs.
fn counts(status: &Status) -> Vec<Metric> {
    let counters = &status.counters;
    let mut counts = vec![
        (
            "fanpcap_analyzer_ring_lost_packets_total",
            "Packets that nodes lost because a ring was full.",
            status.account.ring,
        ),
        (
            "fanpcap_analyzer_export_lost_records_total",
            "Packets that nodes captured, but that did not reach the analyzer.",
            counters.export_lost,
        ),
        (
            "fanpcap_analyzer_written_packets_total",
            "Packets that were written to files.",
            status.written,
        ),
        (
            "fanpcap_analyzer_unwritten_packets_total",
            "Packets that were received and could not be written.",
            status.unwritten,
        ),
        (
            "fanpcap_analyzer_refused_messages_total",
            "Refused messages and connections: garbage, forged, or from another cluster.",
            status.refused + counters.refused_batches,
        ),
        (
            "fanpcap_analyzer_crowded_batches_total",
            "Batches refused because an analyzer can't follow more nodes or sessions.",
            counters.crowded_batches,
        ),
    ];
    counts.extend(outcomes(status));
    counts
}

/// What the analyzer did with the records that it received.
fn outcomes(status: &Status) -> [Metric; 9] {
    let counters = &status.counters;
    [
        (
            "fanpcap_analyzer_received_records_total",
            "Records that came.",
            counters.received,
        ),
        (
            "fanpcap_analyzer_delivered_packets_total",
            "Packets that were delivered, each once.",
            counters.delivered,
        ),
        (
            "fanpcap_analyzer_removed_doubles_total",
            "Records of packets that another node had captured too.",
            counters.doubles,
        ),
        (
            "fanpcap_analyzer_fenced_records_total",
            "Records of buckets that another node had taken over.",
            counters.fenced,
        ),
        (
            "fanpcap_analyzer_foreign_records_total",
            "Records whose topology does not give the bucket to the node.",
            counters.foreign,
        ),
        (
            "fanpcap_analyzer_unknown_records_total",
            "Records that name a topology that the cluster never had.",
            counters.unknown,
        ),
        (
            "fanpcap_analyzer_late_records_total",
            "Records that came too late to be delivered in order.",
            counters.late,
        ),
        (
            "fanpcap_analyzer_unchecked_records_total",
            "Late records that could not be checked for doubles any more.",
            counters.unchecked,
        ),
        (
            "fanpcap_analyzer_ahead_records_total",
            "Records whose time stamps are seconds ahead of other nodes'.",
            counters.ahead,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use fanpcap_cluster::analyzer::Counters;
    use fanpcap_cluster::loss_account::Account;
    use fanpcap_terminal::exposition::text;

    use super::super::extra_counter;
    use super::*;
    use crate::textfile::assert_documented;

    #[test]
    fn what_only_grows_is_a_counter_and_what_may_shrink_a_gauge() {
        let mut account = Account {
            ring: 3,
            apart: Some(1_500_000),
            ..Account::default()
        };
        account.total.lost.least = 12;
        account.nodes.push(NodeAccount {
            node: NodeId(0xa1),
            verdict: Verdict::Lossy(250),
            mirror: -4,
            ring: 2,
            captured: 9,
            seen: 11,
        });
        let status = Status {
            account,
            clocks: Vec::new(),
            ages: vec![(NodeId(0xa2), 4_500_000_000)],
            blind: None,
            missing: std::collections::BTreeMap::new(),
            counters: Counters::default(),
            written: 7,
            unwritten: 0,
            refused: 0,
            refusals: vec![("seal", 5)],
            extra_counters: [
                extra_counter::REMOVED_FILES,
                extra_counter::REMOVED_BYTES,
                extra_counter::COMPRESSED_FILES,
                extra_counter::COMPRESSED_SAVED,
                extra_counter::EXPORTED,
                extra_counter::EXPORT_LEFT_OUT,
                extra_counter::EXPORT_CUT,
                extra_counter::EXPORT_LOST,
                extra_counter::EXPORT_SKIPPED,
                extra_counter::DICAP_HEADERS,
                extra_counter::DICAP_REFUSED,
                extra_counter::DICAP_DROPPED,
                extra_counter::DICAP_MISSING,
            ]
            .map(|extra_counter| (extra_counter, 6))
            .to_vec(),
            trouble: None,
        };
        let metrics = Metrics::new([None, None], "lab");
        let families = metrics.families(&status);
        for family in &families {
            let is_counter = family.kind == Kind::Counter;
            let is_total = family.name.ends_with("_total");
            assert_eq!(is_counter, is_total, "{}", family.name);
        }
        assert_documented("fanpcap_analyzer_", &families);
        let text = text(&families);
        for line in [
            "lost_packets_least{cluster=\"lab\"} 12",
            "written_packets_total{cluster=\"lab\"} 7",
            "ring_lost_packets_total{cluster=\"lab\"} 3",
            "nodes_apart_seconds{cluster=\"lab\"} 0.002",
            "unbelieved_messages_total{cluster=\"lab\",reason=\"seal\"} 5",
            "dicap_missing_headers{cluster=\"lab\"} 6",
            "node_report_age_seconds{cluster=\"lab\",node=\"000000a2\"} 4.500",
            "node_sound{cluster=\"lab\",node=\"000000a1\"} 0",
            "node_mirror_loss_ppm{cluster=\"lab\",node=\"000000a1\"} 250",
            "node_mirror_lost_packets{cluster=\"lab\",node=\"000000a1\"} -4",
        ] {
            let line = format!("\nfanpcap_analyzer_{line}\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
