//! Makes a view from the keys of a cluster.

use std::collections::BTreeMap;

use fanpcap_cluster::{
    DesiredState, LiveNode, NODES, Refusal, Revision, Topology, View, unreadable_topology,
};

use super::names::{Kind, Names};
use super::record::{self, Desired};
use crate::kv::KeyValue;

/// A copy of a cluster's keys and values.
pub type CopyOfKeys = BTreeMap<Vec<u8>, KeyValue>;

/// The candidates in the election of coordinators.
pub(super) fn candidates<'a>(
    names: &'a Names,
    keys: &'a CopyOfKeys,
) -> impl Iterator<Item = &'a KeyValue> {
    keys.values()
        .filter(|kv| names.kind(&kv.key) == Some(Kind::Candidate))
}

/// The revision of a topology whose etcd key has the `mod_revision` `number`.
pub(super) fn revision(number: i64) -> Revision {
    Revision(u64::try_from(number).unwrap_or(0))
}

/// The view of a coordinator that does not lead. Values that can't be read, for example because a
/// later version wrote them, are left out. If there are more than [`NODES`] nodes, only the oldest
/// of them are in the view.
pub fn view(names: &Names, keys: &CopyOfKeys, desired: &DesiredState) -> View {
    let mut view = View {
        desired: desired.clone(),
        ..View::default()
    };
    let mut nodes = Vec::new();
    for (key, kv) in keys {
        match names.kind(key) {
            Some(Kind::Node(node)) => {
                let said = record::announcement(node, &kv.value);
                nodes.extend(said.map(|said| (kv.create_revision, said)));
            }
            Some(Kind::Topology) => {
                let topology = Topology::decode(&kv.value);
                view.topology = topology.map(|one| (revision(kv.mod_revision), Box::new(one)));
            }
            Some(Kind::Desired) => {
                if let Some(desired) = Desired::from_value(&kv.value) {
                    view.desired.drained = desired.drained;
                    view.desired.weights = desired.weights;
                }
            }
            Some(Kind::Ack(_) | Kind::Candidate | Kind::Clone(_)) | None => {}
        }
    }
    nodes.sort_by_key(|(created, _)| *created);
    nodes.truncate(NODES);
    nodes.sort_by_key(|(_, said)| said.node);
    view.live = nodes
        .into_iter()
        .map(|(_, announcement)| LiveNode {
            announcement,
            acknowledged: keys
                .get(&names.ack(announcement.node))
                .and_then(|ack| record::acknowledged(&ack.value)),
        })
        .collect();
    view
}

/// The revision of the topology, if a later version has written it and this version can't read it.
pub(super) fn unreadable(names: &Names, keys: &CopyOfKeys) -> Option<Revision> {
    let kv = keys.get(&names.topology())?;
    let is_read = Topology::decode(&kv.value).is_some();
    (!is_read).then(|| revision(kv.mod_revision))
}

/// Notes for the operator about problems that the keys show, one sentence each.
pub fn notes(names: &Names, keys: &CopyOfKeys) -> Vec<String> {
    let mut notes = Vec::new();
    let mut nodes = 0;
    for (key, kv) in keys {
        match names.kind(key) {
            Some(Kind::Node(_)) => nodes += 1,
            Some(Kind::Clone(node)) => {
                if let Some(said) = record::announcement(node, &kv.value) {
                    let (address, why) = (said.address, Refusal::TakenId);
                    let note = format!("the machine at {address}, node {node}, is refused: {why}");
                    notes.push(note);
                }
            }
            Some(Kind::Ack(_) | Kind::Candidate | Kind::Topology | Kind::Desired) | None => {}
        }
    }
    notes.truncate(NODES);
    if nodes > NODES {
        let count = nodes - NODES;
        notes.push(format!("{count} nodes have no slot: the cluster is full"));
    }
    notes.extend(unreadable(names, keys).map(unreadable_topology));
    notes
}
