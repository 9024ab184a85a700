//! The next topology of a cluster, computed from the present one and the nodes that share it.
//!
//! The rule that loses no packet: **the owner of a bucket captures until the new owner captures.**
//! Each change begins with a union. The owners of the union are the present owners, and its new
//! owners are the owners in the target. A dead owner stays in the union's table, because it may
//! only be cut off from the coordinator and still capture. Such a node captures until it reads the
//! next stable topology. By then, the new owner captures.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_buckets::{Owners, Share, Slot, plan};
use fanpcap_select::{Filter, Key, Selection, in_turn};

use crate::identity::NodeId;
use crate::topology::{NODES, NodeEntry, Topology};

#[cfg(test)]
mod tests;

/// A node that shares the buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The node's id.
    pub node: NodeId,
    /// The node gets buckets in proportion to this weight; 0 if the node is drained.
    pub weight: u16,
}

/// The target of a change: the stable topology with which a cluster would begin. A new cluster
/// needs no union, because no node captured before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeTarget(pub Topology);

impl ChangeTarget {
    /// The target for these members. `None` if no member has a weight.
    ///
    /// With [`Key::Packet`] and [`Key::Flow`], as few buckets as possible move. With the other
    /// keys, the table is that of DiCAP's paper: nodes with a weight get equal shares.
    ///
    /// A member that has a slot keeps it. A newcomer gets the lowest free slot below [`NODES`], if
    /// any.
    pub fn new(
        current: Option<&Topology>,
        members: &[Member],
        selection: Selection,
        analyzers: &[SocketAddr],
        filter: Option<&Filter>,
    ) -> Option<Self> {
        let entries = entries(current, members);
        let shares: Vec<Share> = entries
            .iter()
            .map(|entry| Share {
                slot: entry.slot,
                weight: entry.weight,
            })
            .collect();
        if shares.iter().all(|share| share.weight == 0) {
            return None;
        }
        let selection = current.map_or(selection, |topology| keep_initial(topology, selection));
        let table = match selection.key {
            Key::Packet | Key::Flow => fewest_moves(current, &shares),
            Key::RoundRobin | Key::Identification => in_turn(&due(&shares)),
        };
        Some(Self(Topology {
            epoch: 1,
            selection,
            nodes: entries,
            owners: table,
            new_owners: None,
            analyzers: analyzers.to_vec(),
            filter: filter.cloned(),
        }))
    }

    /// Whether the topology has this target, or is a union that leads to it.
    pub fn is_of(&self, topology: &Topology) -> bool {
        let target = &self.0;
        let table = topology.new_owners.as_ref().unwrap_or(&topology.owners);
        let leaves = |entry: &&NodeEntry| topology.new_owners.is_none() || entry.weight > 0;
        let mut staying = topology.nodes.iter().filter(leaves);
        let mut nodes = target.nodes.iter();
        target.owners == *table
            && target.selection == topology.selection
            && target.analyzers == topology.analyzers
            && target.filter == topology.filter
            && nodes.all(|entry| topology.nodes.contains(entry))
            && staying.all(|entry| target.nodes.contains(entry))
    }
}

/// The topology that begins a change to `target`, from a stable topology or during another change.
///
/// Each bucket keeps its owner, except a bucket whose owner is dead and whose new owner already
/// captures. The new owner becomes the owner of such a bucket, because otherwise no node might
/// capture the bucket for a while. `follows` says whether a node captures as `current` demands.
pub fn begin(
    current: &Topology,
    target: &ChangeTarget,
    dead: &BTreeSet<NodeId>,
    follows: impl Fn(NodeId) -> bool,
) -> Topology {
    let captures = |node: NodeId| !dead.contains(&node) && follows(node);
    let ChangeTarget(target) = target;
    let mut next = Topology {
        epoch: current.epoch + 1,
        ..target.clone()
    };
    if target.selection != current.selection {
        return next;
    }
    let node = |slot: Option<Slot>| {
        let entry = current.nodes.iter().find(|entry| Some(entry.slot) == slot);
        entry.map(|entry| entry.node)
    };
    for bucket in 0..BUCKETS {
        let owner = current.owners[bucket];
        let new_owner = current
            .new_owners
            .as_ref()
            .map_or(owner, |new_owners| new_owners[bucket]);
        let owner_lives = node(owner).is_some_and(|node| !dead.contains(&node));
        next.owners[bucket] = match !owner_lives && node(new_owner).is_some_and(captures) {
            true => new_owner,
            false => owner,
        };
    }
    if next.owners != target.owners {
        next.new_owners = Some(target.owners.clone());
    }
    let needed: BTreeSet<Slot> = next.owners.iter().flatten().copied().collect();
    for entry in &current.nodes {
        let is_member = target.nodes.iter().any(|other| other.slot == entry.slot);
        if needed.contains(&entry.slot) && !is_member {
            next.nodes.push(NodeEntry {
                weight: 0,
                ..*entry
            });
        }
    }
    next.nodes.sort_unstable_by_key(|entry| entry.slot);
    next
}

/// The stable topology that ends the union `current`; `None` if `current` is not a union. Only
/// nodes that own a bucket or are members keep their slot.
pub fn complete(current: &Topology, is_member: impl Fn(NodeId) -> bool) -> Option<Topology> {
    let owners = current.new_owners.clone()?;
    let owning: BTreeSet<Slot> = owners.iter().flatten().copied().collect();
    let mut next = Topology {
        epoch: current.epoch + 1,
        owners,
        new_owners: None,
        ..current.clone()
    };
    let entries = &mut next.nodes;
    entries.retain(|entry| owning.contains(&entry.slot) || is_member(entry.node));
    Some(next)
}

/// The same topology with the next epoch, to be written with a greater revision.
pub fn again(current: &Topology) -> Topology {
    Topology {
        epoch: current.epoch + 1,
        ..current.clone()
    }
}

/// The nodes that get buckets in a union. The union ends when all of these nodes capture by it.
pub fn gainers(topology: &Topology) -> BTreeSet<NodeId> {
    let Some(new_owners) = &topology.new_owners else {
        return BTreeSet::new();
    };
    let pairs = topology.owners.iter().zip(new_owners.iter());
    let moving = pairs.filter(|(owner, new_owner)| owner != new_owner);
    let slots: BTreeSet<Slot> = moving.filter_map(|(_, new_owner)| *new_owner).collect();
    let entries = topology.nodes.iter();
    let gaining = entries.filter(|entry| slots.contains(&entry.slot));
    gaining.map(|entry| entry.node).collect()
}

/// The slots of nodes with a weight.
fn due(shares: &[Share]) -> Vec<Slot> {
    let due = shares.iter().filter(|share| share.weight > 0);
    due.map(|share| share.slot).collect()
}

/// The table for `shares` that differs least from the table at the end of the current change.
fn fewest_moves(current: Option<&Topology>, shares: &[Share]) -> Box<Owners> {
    let nobody = || Box::new([None; BUCKETS]);
    let mut table = current.map_or_else(nobody, |topology| present(topology, shares));
    for step in plan(&table, shares) {
        table[step.bucket] = Some(step.to);
    }
    table
}

/// The owners when the current change is over. If a bucket's new owner no longer has a share, the
/// bucket stays with its present owner.
fn present(topology: &Topology, shares: &[Share]) -> Box<Owners> {
    let Some(new_owners) = &topology.new_owners else {
        return topology.owners.clone();
    };
    let is_due = |slot: Slot| {
        shares
            .iter()
            .any(|share| share.slot == slot && share.weight > 0)
    };
    let new_owner = |bucket: usize| new_owners[bucket].filter(|new_owner| is_due(*new_owner));
    Box::new(std::array::from_fn(|bucket| {
        new_owner(bucket).or(topology.owners[bucket])
    }))
}

/// How many buckets have different owners in two tables.
pub fn moves(from: &Owners, to: &Owners) -> usize {
    from.iter().zip(to).filter(|(from, to)| from != to).count()
}

/// How packets are selected in the topology after `current`. If the selection key stays the same,
/// the hash keeps its initial value, because another coordinator may have chosen another random
/// value. While the nodes change to another selection key one after the other, packets are missed
/// and doubled. So the key changes only if `current` is stable, and never during a union.
fn keep_initial(current: &Topology, changed: Selection) -> Selection {
    match current.new_owners.is_none() && changed.key != current.selection.key {
        true => changed,
        false => current.selection,
    }
}

/// The members with their slots. Members keep their slots, and newcomers get the lowest free slots.
/// The slots of nodes that leave stay taken, because these nodes are still in the next union.
fn entries(current: Option<&Topology>, members: &[Member]) -> Vec<NodeEntry> {
    let present = current.map_or(&[][..], |topology| &topology.nodes);
    let mut taken: BTreeSet<Slot> = present.iter().map(|entry| entry.slot).collect();
    let mut entries = Vec::new();
    let mut newcomers = Vec::new();
    for member in members {
        match present.iter().find(|entry| entry.node == member.node) {
            Some(entry) => entries.push(NodeEntry {
                weight: member.weight,
                ..*entry
            }),
            None => newcomers.push(member),
        }
    }
    for member in newcomers {
        let slots = (0..=u8::MAX).take(NODES).map(Slot);
        let Some(slot) = slots.into_iter().find(|slot| !taken.contains(slot)) else {
            break;
        };
        taken.insert(slot);
        entries.push(NodeEntry {
            slot,
            node: member.node,
            weight: member.weight,
        });
    }
    entries.sort_unstable_by_key(|entry| entry.slot);
    entries
}
