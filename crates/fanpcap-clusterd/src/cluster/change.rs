//! `fanpcap cluster drain` and `weight`: changes that the operator makes to a node.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use fanpcap_cluster::NodeId;
use fanpcap_cluster::control::OperatorChange;
use fanpcap_terminal::streams;

use super::waiting::WaitingNotice;
use crate::conf::{self, Conf, PATH};
use crate::coordination::OperatorSide;
use crate::engine;

/// Takes all buckets from a node, before the node is stopped or when it is dead
#[derive(Args, Debug)]
pub(crate) struct Drain {
    /// The node's id
    #[arg(value_name = "NODE")]
    node: String,
    /// Allows the node to have buckets again
    #[arg(long)]
    undo: bool,
    /// The settings of the cluster
    #[arg(long, value_name = "FILE", default_value = PATH)]
    config: PathBuf,
}

/// Gives a node another share of the buckets, compared with the other nodes
#[derive(Args, Debug)]
pub(crate) struct Weight {
    /// The node's id
    #[arg(value_name = "NODE")]
    node: String,
    /// The weight. Without a weight, the weight in the node's own settings is used again
    #[arg(value_name = "WEIGHT", value_parser = clap::value_parser!(u16).range(1..=i64::from(conf::WEIGHT_MAX)))]
    weight: Option<u16>,
    /// The settings of the cluster
    #[arg(long, value_name = "FILE", default_value = PATH)]
    config: PathBuf,
}

pub(crate) fn drain(arguments: &Drain) -> Result<ExitCode> {
    let conf = Conf::load(&arguments.config)?;
    let node = conf::node(&arguments.node)?;
    let change = match arguments.undo {
        true => OperatorChange::Restore(node),
        false => OperatorChange::Drain(node),
    };
    let _notice = WaitingNotice::of(&conf);
    make(&mut *engine::operator_side(&conf)?, node, &change)
}

pub(crate) fn weight(arguments: &Weight) -> Result<ExitCode> {
    let conf = Conf::load(&arguments.config)?;
    let node = conf::node(&arguments.node)?;
    let change = OperatorChange::Weight(node, arguments.weight);
    let _notice = WaitingNotice::of(&conf);
    make(&mut *engine::operator_side(&conf)?, node, &change)
}

/// Makes the change. If the node is not in the cluster, refuses any change but one that undoes an
/// earlier change.
fn make(side: &mut dyn OperatorSide, node: NodeId, change: &OperatorChange) -> Result<ExitCode> {
    let view = side.look()?.view;
    let is_live = view.live.iter().any(|live| live.announcement.node == node);
    let entry = view.topology.as_ref().and_then(|(_, it)| it.entry(node));
    let is_back = matches!(
        change,
        OperatorChange::Restore(_) | OperatorChange::Weight(_, None)
    );
    if !is_live && entry.is_none() && !is_back {
        bail!("node {node} is not in the cluster: 'fanpcap cluster status' lists its nodes");
    }
    side.change(change)?;
    let said = match change {
        OperatorChange::Drain(_) => {
            "gives its buckets to other nodes: stop the node when it has no buckets left".to_owned()
        }
        OperatorChange::Restore(_) => "gets buckets again".to_owned(),
        OperatorChange::Weight(_, Some(weight)) => format!("has weight {weight}"),
        OperatorChange::Weight(_, None) => "again has the weight of its own settings".to_owned(),
    };
    streams::print(&format!("node {node} {said} ('fanpcap cluster status')\n"))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use fanpcap_cluster::reshape::{ChangeTarget, Member};
    use fanpcap_cluster::{Announcement, DesiredState, LiveNode, Revision, View};
    use fanpcap_select::Selection;

    use super::*;
    use fanpcap_cluster::ClusterStatus;

    /// An [`OperatorSide`] for a cluster that exists only in memory.
    #[derive(Default)]
    struct Side(View);

    impl OperatorSide for Side {
        fn look(&mut self) -> Result<ClusterStatus> {
            let view = self.0.clone();
            Ok(ClusterStatus {
                unreadable: None,
                view,
                ..ClusterStatus::default()
            })
        }

        fn change(&mut self, change: &OperatorChange) -> Result<()> {
            change.apply(&mut self.0.desired)?;
            Ok(())
        }
    }

    #[test]
    fn a_change_too_many_is_refused_with_the_way_out() {
        let desired = DesiredState {
            drained: (0..128).map(NodeId).collect(),
            ..DesiredState::default()
        };
        let live = [7, 500].map(|node| LiveNode {
            announcement: Announcement {
                node: NodeId(node),
                boot: 1,
                weight: 1,
                address: ([10, 0, 0, 1], 1).into(),
                setup: None,
            },
            acknowledged: None,
        });
        let mut side = Side(View {
            desired,
            live: live.to_vec(),
            ..View::default()
        });
        make(&mut side, NodeId(7), &OperatorChange::Drain(NodeId(7))).unwrap();
        let error = make(&mut side, NodeId(500), &OperatorChange::Drain(NodeId(500))).unwrap_err();
        assert!(error.to_string().contains("128 nodes"), "{error}");
        make(&mut side, NodeId(7), &OperatorChange::Restore(NodeId(7))).unwrap();
        make(&mut side, NodeId(500), &OperatorChange::Drain(NodeId(500))).unwrap();
    }

    #[test]
    fn changes_stand_for_nodes_of_the_cluster() {
        let member = Member {
            node: NodeId(1),
            weight: 1,
        };
        let target = ChangeTarget::new(None, &[member], Selection::default(), &[], None).unwrap();
        let mut side = Side::default();
        side.0.topology = Some((Revision(1), Box::new(target.0)));
        let mut is_made = |change, node| make(&mut side, NodeId(node), &change).is_ok();
        assert!(is_made(OperatorChange::Drain(NodeId(1)), 1));
        assert!(!is_made(OperatorChange::Drain(NodeId(2)), 2));
        assert!(is_made(OperatorChange::Restore(NodeId(2)), 2));
        assert!(is_made(OperatorChange::Weight(NodeId(1), Some(7)), 1));
        let desired = DesiredState {
            drained: [NodeId(1)].into(),
            weights: [(NodeId(1), 7)].into(),
            ..DesiredState::default()
        };
        assert_eq!(side.0.desired, desired);
    }
}
