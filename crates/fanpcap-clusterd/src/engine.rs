//! The coordination engine that cluster.conf names.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use fanpcap_cluster::reshape::{ChangeTarget, Member};
use fanpcap_cluster::{Announcement, DesiredState, Topology};

use crate::conf::{Conf, Engine};
use crate::coordination::{CoordinatorSide, NodeSide, OperatorSide};
use crate::embedded::{EmbeddedCoordinator, EmbeddedNode, EmbeddedOperator};
use crate::etcd::{self, EtcdKeys};
use crate::fixed::{Fixed, FixedOperator};

/// The default directory of a coordinator's state; systemd may name another directory.
const STATE: &str = "/var/lib/fanpcap";

/// A node's side of the cluster's engine.
///
/// # Errors
/// Fails if the settings do not fit the engine, or if the engine can't be used.
pub fn node_side(conf: &Conf, announcement: &Announcement) -> Result<Box<dyn NodeSide>> {
    match &conf.engine {
        Engine::Fixed(_) => Ok(Box::new(Fixed::new(fixed_topology(conf)?))),
        Engine::Embedded(embedded) => {
            Ok(Box::new(EmbeddedNode::new(conf, embedded, *announcement)?))
        }
        Engine::Etcd(etcd) => Ok(Box::new(etcd::node(&conf.cluster, etcd)?)),
    }
}

/// A coordinator's side of the cluster's engine. `who` is the coordinator's name.
///
/// # Errors
/// Fails if the settings do not fit the engine, or if the engine can't be used.
pub fn coordinator_side(
    conf: &Conf,
    who: &str,
    desired: DesiredState,
) -> Result<Box<dyn CoordinatorSide>> {
    match &conf.engine {
        Engine::Fixed(_) => bail!(
            "a cluster with 'engine = fixed' has no coordinator: its nodes follow their settings"
        ),
        Engine::Embedded(embedded) => {
            let side = EmbeddedCoordinator::new(conf, embedded, desired, &state_directory())?;
            Ok(Box::new(side))
        }
        Engine::Etcd(etcd) => {
            let side = etcd::coordinator(&conf.cluster, etcd, who, desired)?;
            Ok(Box::new(side))
        }
    }
}

/// The directory of a coordinator's state: the directory that systemd names, or the default.
fn state_directory() -> PathBuf {
    let named = std::env::var_os("STATE_DIRECTORY");
    named.map_or_else(|| PathBuf::from(STATE), PathBuf::from)
}

/// An operator's access to the cluster's engine.
///
/// # Errors
/// Fails if the settings do not fit the engine, or if the engine can't be used.
pub fn operator_side(conf: &Conf) -> Result<Box<dyn OperatorSide>> {
    match &conf.engine {
        Engine::Fixed(_) => Ok(Box::new(FixedOperator(fixed_topology(conf)?))),
        Engine::Embedded(embedded) => Ok(Box::new(EmbeddedOperator::new(conf, embedded))),
        Engine::Etcd(etcd) => Ok(Box::new(EtcdKeys::new(&conf.cluster, etcd)?)),
    }
}

/// The topology of a cluster that never changes. The order of nodes in the settings has no effect.
fn fixed_topology(conf: &Conf) -> Result<Topology> {
    let Engine::Fixed(nodes) = &conf.engine else {
        bail!("the cluster's engine is not 'fixed'");
    };
    let mut members: Vec<Member> = nodes
        .iter()
        .map(|&(node, weight)| Member { node, weight })
        .collect();
    members.sort_unstable_by_key(|member| member.node);
    let (analyzers, filter) = (&conf.analyzers, conf.filter()?);
    let target = ChangeTarget::new(None, &members, conf.selection, analyzers, filter.as_ref());
    let target = target.context("the cluster has no node that may have packets")?;
    Ok(target.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_nodes_does_not_matter() {
        let topology = |nodes| {
            let text = format!("cluster = lab\nengine = fixed\nnodes = {nodes}\n");
            fixed_topology(&Conf::parse(&text, "c").unwrap()).unwrap()
        };
        let one = topology("a1, a2*2, a3");
        assert_eq!(one, topology("a3, a1, a2*2"));
        assert_eq!(one.check(), Ok(()));
        let of = |slot| {
            one.owners
                .iter()
                .filter(|owner| **owner == Some(slot))
                .count()
        };
        assert_eq!(of(one.nodes[1].slot), 2048);
        let embedded = "cluster = a\nkey_file = /k\ncoordinators = 1.2.3.4:5";
        fixed_topology(&Conf::parse(embedded, "c").unwrap()).unwrap_err();
    }
}
