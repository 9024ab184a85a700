//! A coordinator's metrics, for Prometheus.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fanpcap_cluster::{Phase, View};
use fanpcap_terminal::exposition::{Family, Kind, Label, Number};

use crate::cluster::status;
use crate::textfile::{Metric, Textfile, families};

/// The time between two writes of the file.
const EVERY: Duration = Duration::from_secs(1);

/// Writes a coordinator's metrics to a file.
#[derive(Debug)]
pub(super) struct Metrics {
    file: Textfile,
    cluster: Vec<Label>,
    last: Option<Instant>,
}

impl Metrics {
    /// Metrics of this cluster, which are written to `file`.
    pub(super) fn new(file: PathBuf, cluster: &str) -> Self {
        Self {
            file: Textfile::new(file, "coordinator"),
            cluster: vec![("cluster", cluster.to_owned())],
            last: None,
        }
    }

    /// Replaces the content of the file if the last write was long enough ago. `written` is how
    /// many topologies were written; `refused` counts control messages by cause.
    pub(super) fn write(&mut self, view: &View, written: u64, refused: &[(&str, u64)]) {
        if self.last.is_some_and(|last| last.elapsed() < EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let families = self.families(view, written, refused);
        self.file.write(&families);
    }

    /// Writes at once that this coordinator does not lead any more.
    pub(super) fn end(&mut self, written: u64, refused: &[(&str, u64)]) {
        self.last = None;
        self.write(&View::default(), written, refused);
    }

    fn families(&self, view: &View, written: u64, refused: &[(&str, u64)]) -> Vec<Family> {
        let counters = families(Kind::Counter, &self.cluster, counters(written, refused));
        let leads = families(Kind::Gauge, &self.cluster, [leads(view)]);
        let mut all: Vec<Family> = leads.chain(counters).collect();
        all.push(self.refused(refused));
        if view.leads {
            all.extend(families(Kind::Gauge, &self.cluster, of_topology(view)));
            all.extend(self.of_nodes(view));
        }
        all
    }

    fn refused(&self, refused: &[(&str, u64)]) -> Family {
        let sample = |&(cause, count): &(&str, u64)| {
            let mut labels = self.cluster.clone();
            labels.push(("cause", cause.to_owned()));
            (labels, Number::Whole(count))
        };
        Family {
            name: "fanpcap_coordinator_refused_messages_total",
            help: "Control messages that were refused, by cause.",
            kind: Kind::Counter,
            samples: refused.iter().map(sample).collect(),
        }
    }

    fn of_nodes(&self, view: &View) -> [Family; 3] {
        let mut infos = Vec::new();
        let mut states = Vec::new();
        let mut buckets = Vec::new();
        for row in status::rows(view) {
            let mut labels = self.cluster.clone();
            labels.push(("node", row.node.to_string()));
            buckets.push((labels.clone(), Number::Whole(row.buckets as u64)));
            if let Some(setup) = row.setup() {
                let mut labels = labels.clone();
                labels.push(("version", setup.version.to_string()));
                labels.push(("mode", status::setup::mode(&setup)));
                labels.push(("select", setup.key.name().to_owned()));
                infos.push((labels, Number::Whole(1)));
            }
            labels.push(("state", row.state().to_owned()));
            states.push((labels, Number::Whole(1)));
        }
        let of = |name, help, samples| Family {
            name,
            help,
            kind: Kind::Gauge,
            samples,
        };
        [
            of(
                "fanpcap_coordinator_node_state",
                "Always 1; the label has the node's state, as in fanpcap cluster status.",
                states,
            ),
            of(
                "fanpcap_coordinator_node_buckets",
                "Buckets that only this node has.",
                buckets,
            ),
            of(
                "fanpcap_coordinator_node_info",
                "Always 1; the labels have the node's version, mode and selection.",
                infos,
            ),
        ]
    }
}

fn leads(view: &View) -> Metric {
    (
        "fanpcap_coordinator_leads",
        "1 while this coordinator leads. Only a leader has the metrics of nodes.",
        u64::from(view.leads),
    )
}

fn counters(written: u64, refused: &[(&str, u64)]) -> [Metric; 2] {
    let forged = refused
        .iter()
        .filter(|(cause, _)| ["key", "seal"].contains(cause));
    [
        (
            "fanpcap_coordinator_topologies_written_total",
            "Topologies that this coordinator wrote.",
            written,
        ),
        (
            "fanpcap_coordinator_forged_messages_total",
            "Control messages with a wrong key or seal.",
            forged.map(|(_, count)| count).sum(),
        ),
    ]
}

fn of_topology(view: &View) -> [Metric; 2] {
    let topology = view.topology.as_ref();
    let is_union = topology.is_some_and(|(_, it)| it.phase() == Phase::Union);
    [
        (
            "fanpcap_coordinator_topology_revision",
            "The revision of the cluster's topology; 0 for none.",
            topology.map_or(0, |(revision, _)| revision.0),
        ),
        (
            "fanpcap_coordinator_union",
            "1 while buckets move.",
            u64::from(is_union),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use fanpcap_cluster::{Announcement, LiveNode, NodeId, Setup, Version};
    use fanpcap_select::Key;
    use fanpcap_terminal::exposition::text;

    use super::*;
    use crate::textfile::assert_documented;

    #[test]
    fn only_who_leads_tells_of_nodes() {
        let mut view = View {
            leads: true,
            ..View::default()
        };
        view.live.push(LiveNode {
            announcement: Announcement {
                node: NodeId(0xa1),
                boot: 1,
                weight: 1,
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9)),
                setup: Some(Setup {
                    version: Version([0, 1, 2]),
                    header: Some(52),
                    key: Key::Flow,
                    devices: Some(1),
                }),
            },
            acknowledged: None,
        });
        let metrics = Metrics::new("/absent".into(), "lab");
        let refused = [("key", 2), ("seal", 1), ("version", 4)];
        let leads = text(&metrics.families(&view, 3, &refused));
        for line in [
            "leads{cluster=\"lab\"} 1",
            "topologies_written_total{cluster=\"lab\"} 3",
            "forged_messages_total{cluster=\"lab\"} 3",
            "refused_messages_total{cluster=\"lab\",cause=\"version\"} 4",
            "union{cluster=\"lab\"} 0",
            "node_state{cluster=\"lab\",node=\"000000a1\",state=\"waiting\"} 1",
            "node_info{cluster=\"lab\",node=\"000000a1\",version=\"0.1.2\",mode=\"capture 52\",\
             select=\"flow\"} 1",
            "node_buckets{cluster=\"lab\",node=\"000000a1\"} 0",
        ] {
            let line = format!("\nfanpcap_coordinator_{line}\n");
            assert!(leads.contains(&line), "{line} in {leads}");
        }
        assert_documented(
            "fanpcap_coordinator_",
            &metrics.families(&view, 3, &refused),
        );
        view.leads = false;
        let stands_by = text(&metrics.families(&view, 3, &refused));
        assert!(
            stands_by.contains("_leads{cluster=\"lab\"} 0\n"),
            "{stands_by}"
        );
        assert!(!stands_by.contains("_node_"), "{stands_by}");
    }
}
