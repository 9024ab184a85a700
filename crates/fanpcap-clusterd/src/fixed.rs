//! The engine `fixed`: one topology from the settings, for a cluster that never changes.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use fanpcap_cluster::control::OperatorChange;
use fanpcap_cluster::{Announcement, ClusterStatus, NodeEvent, Revision, Topology, View};

use crate::coordination::{NodeSide, OperatorSide};

/// The revision of a fixed topology.
pub const FIXED: Revision = Revision(1);

/// The note to the operator that explains why the state of all nodes is unknown.
pub(crate) const UNKNOWN: &str = "with 'engine = fixed' nodes report their state to nobody: ask \
     each node's service, for example 'systemctl status fanpcap-node'; there is no 'drain' and no 'weight'";

/// A node's side of the engine `fixed`.
#[derive(Debug)]
pub struct Fixed {
    news: Vec<NodeEvent>,
}

/// An operator's view of the engine `fixed`: the topology, and no live nodes.
#[derive(Debug)]
pub struct FixedOperator(pub Topology);

impl OperatorSide for FixedOperator {
    fn look(&mut self) -> Result<ClusterStatus> {
        let topology = Some((FIXED, Box::new(self.0.clone())));
        Ok(ClusterStatus {
            view: View {
                topology,
                ..View::default()
            },
            notes: vec![UNKNOWN.to_owned()],
            ..ClusterStatus::default()
        })
    }

    fn change(&mut self, _: &OperatorChange) -> Result<()> {
        bail!("a cluster with 'engine = fixed' never changes: edit its settings on all machines");
    }
}

impl Fixed {
    /// An engine whose only event is this topology.
    pub fn new(topology: Topology) -> Self {
        let topology = NodeEvent::Topology(FIXED, Box::new(topology));
        Self {
            news: vec![NodeEvent::Reach(true), topology],
        }
    }
}

impl NodeSide for Fixed {
    fn announce(&mut self, _: &Announcement) {}

    fn poll(&mut self, wait: Duration) -> Result<Vec<NodeEvent>> {
        if self.news.is_empty() {
            thread::sleep(wait);
        }
        Ok(std::mem::take(&mut self.news))
    }

    fn acknowledge(&mut self, _: Revision) {}
}

#[cfg(test)]
mod tests {
    use fanpcap_cluster::{NodeEntry, NodeId};
    use fanpcap_select::Selection;

    use super::*;

    #[test]
    fn a_fixed_topology_is_told_once() {
        let topology = Topology {
            epoch: 1,
            selection: Selection::default(),
            nodes: vec![NodeEntry {
                slot: fanpcap_buckets::Slot(0),
                node: NodeId(7),
                weight: 1,
            }],
            owners: Box::new([Some(fanpcap_buckets::Slot(0)); fanpcap_buckets::layout::BUCKETS]),
            new_owners: None,
            analyzers: Vec::new(),
            filter: None,
        };
        let mut engine = Fixed::new(topology.clone());
        let news = engine.poll(Duration::ZERO).unwrap();
        let told = NodeEvent::Topology(FIXED, Box::new(topology));
        assert_eq!(news, [NodeEvent::Reach(true), told]);
        assert_eq!(engine.poll(Duration::from_millis(1)).unwrap(), []);
    }
}
