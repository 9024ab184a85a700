//! The keys of a cluster.

use fanpcap_cluster::{NODES, NodeId};

use crate::kv::{KeyValue, Keys};

/// The names of one cluster's keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// The names for the cluster `cluster`.
    pub fn new(cluster: &str) -> Self {
        Self {
            prefix: format!("/fanpcap/{cluster}/"),
        }
    }

    /// All keys of the cluster.
    pub fn all(&self) -> Keys {
        Keys::Prefix(self.prefix.clone().into_bytes())
    }

    /// The key of a node's announcement.
    pub fn node(&self, node: NodeId) -> Vec<u8> {
        format!("{}nodes/{node}", self.prefix).into_bytes()
    }

    /// The keys of all nodes, and of further machines with the id of a node.
    pub(super) fn nodes(&self) -> Keys {
        Keys::Prefix(format!("{}nodes/", self.prefix).into_bytes())
    }

    /// The key for the announcement of a second machine with the same node id.
    pub(super) fn clone_of(&self, node: NodeId, boot: u64) -> Vec<u8> {
        format!("{}nodes/{node}/{boot:016x}", self.prefix).into_bytes()
    }

    /// Whether the cluster was already full when the node with the key `own` announced itself.
    pub(super) fn is_outside(&self, own: &KeyValue, all: &[KeyValue]) -> bool {
        let is_node = |kv: &&KeyValue| matches!(self.kind(&kv.key), Some(Kind::Node(_)));
        let before = all.iter().filter(is_node);
        let before = before.filter(|kv| kv.create_revision < own.create_revision);
        before.count() >= NODES
    }

    /// The key in which a node stores the revision of the topology by which it captures.
    pub fn ack(&self, node: NodeId) -> Vec<u8> {
        format!("{}ack/{node}", self.prefix).into_bytes()
    }

    /// The name of the coordinators' election.
    pub fn election(&self) -> String {
        format!("{}coord", self.prefix)
    }

    /// The key of the topology.
    pub fn topology(&self) -> Vec<u8> {
        format!("{}topology", self.prefix).into_bytes()
    }

    /// The key of the operator's changes.
    pub fn desired(&self) -> Vec<u8> {
        format!("{}desired", self.prefix).into_bytes()
    }

    /// The kind of a key of the cluster; `None` for other keys.
    pub(super) fn kind(&self, key: &[u8]) -> Option<Kind> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        let node = |text: &str| u32::from_str_radix(text, 16).ok().map(NodeId);
        match rest.split_once('/') {
            None if rest == "topology" => Some(Kind::Topology),
            None if rest == "desired" => Some(Kind::Desired),
            Some(("nodes", id)) => match id.split_once('/') {
                None => node(id).map(Kind::Node),
                Some((id, _)) => node(id).map(Kind::Clone),
            },
            Some(("ack", id)) => node(id).map(Kind::Ack),
            Some(("coord", _)) => Some(Kind::Candidate),
            _ => None,
        }
    }
}

/// The kind of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Node(NodeId),
    Clone(NodeId),
    Ack(NodeId),
    Candidate,
    Topology,
    Desired,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_told_by_its_name() {
        let names = Names::new("lab");
        let node = NodeId(0x1f);
        assert_eq!(names.node(node), b"/fanpcap/lab/nodes/0000001f");
        assert_eq!(names.kind(&names.node(node)), Some(Kind::Node(node)));
        assert_eq!(names.kind(&names.ack(node)), Some(Kind::Ack(node)));
        let clone = names.clone_of(node, 5);
        assert_eq!(names.kind(&clone), Some(Kind::Clone(node)));
        assert_eq!(names.kind(&names.topology()), Some(Kind::Topology));
        assert_eq!(names.kind(&names.desired()), Some(Kind::Desired));
        let candidate = format!("{}/7f", names.election());
        assert_eq!(names.kind(candidate.as_bytes()), Some(Kind::Candidate));
        for other in ["/fanpcap/lab2/topology", "/fanpcap/lab/nodes/x", "\u{ff}"] {
            assert_eq!(names.kind(other.as_bytes()), None);
        }
    }
}
