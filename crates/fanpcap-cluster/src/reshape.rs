//! The next topology of a cluster, computed from the present one and the nodes that share it.
//!
//! The rule that loses no packet: **the owner of a bucket stays until its heir captures.** Each
//! change is written as a union first. The owners of the union are the present owners, the heirs
//! are those of the goal. A dead owner stays too, in name: it may be cut off only, and then it
//! goes on capturing until it reads the next stable topology. By then the heir captures.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_buckets::{Owners, Share, Slot, plan};
use fanpcap_select::{Filter, Key, Selection, in_turn};

use crate::identity::NodeId;
use crate::topology::{NODES, Seat, Topology};

#[cfg(test)]
mod tests;

/// A node that shares the buckets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// Which node.
    pub node: NodeId,
    /// How many buckets it is due, compared with the others; 0 for a node that is drained.
    pub weight: u16,
}

/// Where a cluster is to end: a stable table, and the nodes that share it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Goal {
    /// The members that found a slot, in the order of slots.
    pub seats: Vec<Seat>,
    /// Who is to own each bucket.
    pub table: Box<Owners>,
    /// How packets are to be selected.
    pub selection: Selection,
    /// Where records are to go.
    pub analyzers: Vec<SocketAddr>,
    /// Which packets are to be captured; `None`: all.
    pub filter: Option<Filter>,
}

impl Goal {
    /// The goal for these members. `None` if no member has a weight: then there is nobody to give a
    /// bucket to.
    ///
    /// By our own keys, the fewest buckets move from the goal of the present topology. By the
    /// paper's keys, the table is the paper's, in which no weight counts but 0.
    ///
    /// A node that has a slot keeps it. A newcomer gets the lowest free slot, if there is one: a
    /// cluster has [`NODES`] slots.
    pub fn new(
        current: Option<&Topology>,
        members: &[Member],
        selection: Selection,
        analyzers: &[SocketAddr],
    ) -> Option<Self> {
        let seats = seats(current, members);
        let shares: Vec<Share> = seats
            .iter()
            .map(|seat| Share {
                slot: seat.slot,
                weight: seat.weight,
            })
            .collect();
        if shares.iter().all(|share| share.weight == 0) {
            return None;
        }
        let selection = current.map_or(selection, |topology| kept(topology, selection));
        let table = match selection.key {
            Key::Packet | Key::Flow => fewest_moves(current, &shares),
            Key::RoundRobin | Key::Identification => in_turn(&due(&shares)),
        };
        Some(Self {
            seats,
            table,
            selection,
            analyzers: analyzers.to_vec(),
            filter: None,
        })
    }

    /// The same goal with this filter.
    #[must_use]
    pub fn filtered(self, filter: Option<&Filter>) -> Self {
        Self {
            filter: filter.cloned(),
            ..self
        }
    }

    /// Whether the topology is on its way to this goal, or there.
    pub fn is_of(&self, topology: &Topology) -> bool {
        let table = topology.heirs.as_ref().unwrap_or(&topology.owners);
        let leaves = |seat: &&Seat| topology.heirs.is_none() || seat.weight > 0;
        let stays = |seat: &&Seat| self.seats.contains(seat);
        self.table == *table
            && self.selection == topology.selection
            && self.analyzers == topology.analyzers
            && self.filter == topology.filter
            && self.seats.iter().all(|seat| topology.seats.contains(seat))
            && topology
                .seats
                .iter()
                .filter(leaves)
                .all(|seat| stays(&seat))
    }
}

/// The first topology of a cluster. Nobody captured before, so it needs no union.
pub fn first(goal: &Goal) -> Topology {
    Topology {
        epoch: 1,
        selection: goal.selection,
        seats: goal.seats.clone(),
        owners: goal.table.clone(),
        heirs: None,
        analyzers: goal.analyzers.clone(),
        filter: goal.filter.clone(),
    }
}

/// The topology that begins a change to `goal`, from a stable topology or in the midst of a change.
///
/// The owners stay, with one exception: a dead owner whose heir already captures is replaced by
/// that heir. Another heir could leave the bucket without anybody for a while. `follows`: whether a
/// node captures by the present topology.
pub fn begin(
    current: &Topology,
    goal: &Goal,
    dead: &BTreeSet<NodeId>,
    follows: impl Fn(NodeId) -> bool,
) -> Topology {
    let captures = |node: NodeId| !dead.contains(&node) && follows(node);
    let mut next = Topology {
        epoch: current.epoch + 1,
        ..first(goal)
    };
    if goal.selection != current.selection {
        return next;
    }
    let node = |slot: Option<Slot>| {
        let seat = current.seats.iter().find(|seat| Some(seat.slot) == slot);
        seat.map(|seat| seat.node)
    };
    for bucket in 0..BUCKETS {
        let owner = current.owners[bucket];
        let heir = current.heirs.as_ref().map_or(owner, |heirs| heirs[bucket]);
        let owner_lives = node(owner).is_some_and(|node| !dead.contains(&node));
        next.owners[bucket] = match !owner_lives && node(heir).is_some_and(captures) {
            true => heir,
            false => owner,
        };
    }
    if next.owners != goal.table {
        next.heirs = Some(goal.table.clone());
    }
    let needed: BTreeSet<Slot> = next.owners.iter().flatten().copied().collect();
    for seat in &current.seats {
        let is_member = goal.seats.iter().any(|other| other.slot == seat.slot);
        if needed.contains(&seat.slot) && !is_member {
            next.seats.push(Seat { weight: 0, ..*seat });
        }
    }
    next.seats.sort_unstable_by_key(|seat| seat.slot);
    next
}

/// The stable topology that ends the union `current`. Only nodes that own a bucket or are members
/// keep their slot. `None` if the topology is no union.
pub fn complete(current: &Topology, is_member: impl Fn(NodeId) -> bool) -> Option<Topology> {
    let owners = current.heirs.clone()?;
    let owning: BTreeSet<Slot> = owners.iter().flatten().copied().collect();
    let mut next = Topology {
        epoch: current.epoch + 1,
        owners,
        heirs: None,
        ..current.clone()
    };
    let seats = &mut next.seats;
    seats.retain(|seat| owning.contains(&seat.slot) || is_member(seat.node));
    Some(next)
}

/// The same topology once more. It is newer than all others that nodes may follow.
pub fn again(current: &Topology) -> Topology {
    Topology {
        epoch: current.epoch + 1,
        ..current.clone()
    }
}

/// The nodes that get buckets in a union. It ends once they all capture by it.
pub fn gainers(topology: &Topology) -> BTreeSet<NodeId> {
    let Some(heirs) = &topology.heirs else {
        return BTreeSet::new();
    };
    let pairs = topology.owners.iter().zip(heirs.iter());
    let moving = pairs.filter(|(owner, heir)| owner != heir);
    let slots: BTreeSet<Slot> = moving.filter_map(|(_, heir)| *heir).collect();
    let seats = topology.seats.iter();
    let gaining = seats.filter(|seat| slots.contains(&seat.slot));
    gaining.map(|seat| seat.node).collect()
}

/// The slots that are due buckets.
fn due(shares: &[Share]) -> Vec<Slot> {
    let due = shares.iter().filter(|share| share.weight > 0);
    due.map(|share| share.slot).collect()
}

/// The table after the fewest moves from the present goal.
fn fewest_moves(current: Option<&Topology>, shares: &[Share]) -> Box<Owners> {
    let nobody = || Box::new([None; BUCKETS]);
    let mut table = current.map_or_else(nobody, |topology| present(topology, shares));
    for step in plan(&table, shares) {
        table[step.bucket] = Some(step.to);
    }
    table
}

/// Where the topology's goal has its buckets, so far as these shares can have them. A bucket whose
/// heir has no share any more is its owner's again.
fn present(topology: &Topology, shares: &[Share]) -> Box<Owners> {
    let Some(heirs) = &topology.heirs else {
        return topology.owners.clone();
    };
    let is_due = |slot: Slot| {
        shares
            .iter()
            .any(|share| share.slot == slot && share.weight > 0)
    };
    let heir = |bucket: usize| heirs[bucket].filter(|heir| is_due(*heir));
    Box::new(std::array::from_fn(|bucket| {
        heir(bucket).or(topology.owners[bucket])
    }))
}

/// In how many buckets two tables differ.
pub fn moves(from: &Owners, to: &Owners) -> usize {
    from.iter().zip(to).filter(|(from, to)| from != to).count()
}

/// How packets are selected after `current`. The initial value of the hash stays while the key
/// does: coordinators may each have drawn one. Another key is a cut: nodes change to it one after
/// the other, and in that time packets are missed and duplicated. So it waits for the end of a
/// union.
fn kept(current: &Topology, wished: Selection) -> Selection {
    match current.heirs.is_none() && wished.key != current.selection.key {
        true => wished,
        false => current.selection,
    }
}

/// The seats of the members: slots that they have, then the lowest free ones. A slot of any present
/// node counts as taken, for the union that follows has its seat too.
fn seats(current: Option<&Topology>, members: &[Member]) -> Vec<Seat> {
    let present = current.map_or(&[][..], |topology| &topology.seats);
    let mut taken: BTreeSet<Slot> = present.iter().map(|seat| seat.slot).collect();
    let mut seats = Vec::new();
    let mut newcomers = Vec::new();
    for member in members {
        match present.iter().find(|seat| seat.node == member.node) {
            Some(seat) => seats.push(Seat {
                weight: member.weight,
                ..*seat
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
        seats.push(Seat {
            slot,
            node: member.node,
            weight: member.weight,
        });
    }
    seats.sort_unstable_by_key(|seat| seat.slot);
    seats
}
