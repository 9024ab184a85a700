//! Tests of the owners that a change aims at, and of the topologies that lead to these owners.

use super::*;
use crate::topology::Phase;
use std::collections::BTreeMap;

/// Nodes that are dead, or do not follow the topology yet. All other nodes live and follow it.
#[derive(Default)]
struct Nodes {
    dead: Vec<u32>,
    late: Vec<u32>,
}

fn begin(current: &Topology, target: &ChangeTarget, nodes: &Nodes) -> Topology {
    let dead = nodes.dead.iter().map(|node| NodeId(*node)).collect();
    super::begin(current, target, &dead, |node| !nodes.late.contains(&node.0))
}

impl ChangeTarget {
    /// How many buckets have another owner in this target than in `topology`. If `topology` is a
    /// union, its new owners count.
    fn moves_from(&self, topology: &Topology) -> usize {
        let table = topology.new_owners.as_ref().unwrap_or(&topology.owners);
        moves(table, &self.0.owners)
    }
}

fn member(node: u32, weight: u16) -> Member {
    Member {
        node: NodeId(node),
        weight,
    }
}

fn target(current: Option<&Topology>, members: &[Member]) -> ChangeTarget {
    ChangeTarget::new(current, members, Selection::default(), &[], None)
        .expect("somebody has a weight")
}

/// How many buckets each node will own when the change has ended.
fn shares(topology: &Topology) -> BTreeMap<u32, usize> {
    let mut shares = BTreeMap::new();
    for slot in topology
        .new_owners
        .as_ref()
        .unwrap_or(&topology.owners)
        .iter()
    {
        let entry = topology
            .nodes
            .iter()
            .find(|entry| Some(entry.slot) == *slot);
        *shares.entry(entry.expect("an entry").node.0).or_default() += 1;
    }
    shares
}

fn started(members: &[Member]) -> Topology {
    let ChangeTarget(topology) = target(None, members);
    assert_eq!(topology.check(), Ok(()));
    topology
}

#[test]
fn a_join_moves_only_what_the_newcomer_gets() {
    let two = started(&[member(7, 1), member(9, 1)]);
    assert_eq!(shares(&two), BTreeMap::from([(7, 2048), (9, 2048)]));
    let three = target(Some(&two), &[member(3, 1), member(7, 1), member(9, 1)]);
    assert!(!three.is_of(&two));
    assert_eq!(three.moves_from(&two), 1365);
    let union = begin(&two, &three, &Nodes::default());
    assert_eq!((union.check(), union.phase()), (Ok(()), Phase::Union));
    assert_eq!((&union.owners, union.epoch), (&two.owners, 2));
    assert!(three.is_of(&union));
    assert_eq!(gainers(&union), BTreeSet::from([NodeId(3)]));
    let stable = complete(&union, |_| true).expect("an end");
    assert_eq!((stable.check(), stable.phase()), (Ok(()), Phase::Stable));
    assert!(three.is_of(&stable));
    assert_eq!(complete(&stable, |_| true), None);
    // No node's slot has changed.
    assert_eq!(
        stable.entry(NodeId(7)).map(|entry| entry.slot),
        Some(Slot(0))
    );
    assert_eq!(
        stable.entry(NodeId(3)).map(|entry| entry.slot),
        Some(Slot(2))
    );
}

#[test]
fn a_dead_owner_stays_in_name_until_its_new_owners_capture() {
    let three = started(&[member(1, 1), member(2, 1), member(3, 1)]);
    let nodes = Nodes {
        dead: vec![2],
        late: vec![],
    };
    let two = target(Some(&three), &[member(1, 1), member(3, 1)]);
    assert_eq!(two.moves_from(&three), 1365);
    let union = begin(&three, &two, &nodes);
    assert_eq!(union.check(), Ok(()));
    assert_eq!(union.owners, three.owners);
    assert_eq!(union.entry(NodeId(2)).map(|entry| entry.weight), Some(0));
    assert!(two.is_of(&union));
    let stable = complete(&union, |node| node != NodeId(2)).expect("an end");
    assert_eq!((stable.check(), stable.entry(NodeId(2))), (Ok(()), None));
    assert!(two.is_of(&stable));
}

#[test]
fn a_new_owner_of_the_dead_that_captures_is_the_owner_of_the_next_union() {
    let three = started(&[member(1, 1), member(2, 1), member(3, 1)]);
    let lost = Nodes {
        dead: vec![2],
        late: vec![],
    };
    let two = target(Some(&three), &[member(1, 1), member(3, 1)]);
    let union = begin(&three, &two, &lost);
    let again = target(Some(&union), &[member(1, 1), member(3, 5)]);
    // Nodes 1 and 3 already capture the buckets that they get in the union. So the next change
    // makes them the owners of these buckets, which the dead node had.
    let change = begin(&union, &again, &lost);
    assert_eq!(change.check(), Ok(()));
    assert_eq!(change.owners, *union.new_owners.as_ref().expect("a union"));
    assert_eq!(change.entry(NodeId(2)), None);
    // Node 1 does not capture its new buckets yet. So the dead node stays the owner of these
    // buckets, because it may only be cut off and still capture.
    let late = Nodes {
        dead: vec![2],
        late: vec![1],
    };
    let change = begin(&union, &again, &late);
    assert_eq!(change.check(), Ok(()));
    let dead = three.entry(NodeId(2)).expect("an entry").slot;
    assert!(change.owners.contains(&Some(dead)));
}

#[test]
fn drained_nodes_keep_their_slot_and_get_nothing() {
    let two = started(&[member(1, 1), member(2, 3)]);
    assert_eq!(shares(&two), BTreeMap::from([(1, 1024), (2, 3072)]));
    let drained = target(Some(&two), &[member(1, 1), member(2, 0)]);
    let union = begin(&two, &drained, &Nodes::default());
    let stable = complete(&union, |_| true).expect("an end");
    assert_eq!(shares(&stable), BTreeMap::from([(1, 4096)]));
    assert_eq!(stable.entry(NodeId(2)).map(|entry| entry.weight), Some(0));
    assert!(drained.is_of(&stable));
    assert_eq!(
        ChangeTarget::new(Some(&two), &[member(1, 0)], Selection::default(), &[], None),
        None
    );
}

#[test]
fn one_hundred_and_twenty_eight_nodes_fit() {
    let members: Vec<Member> = (0..200).map(|node| member(node, 1)).collect();
    let full = started(&members);
    assert_eq!(full.nodes.len(), NODES);
    assert!(full.encode().len() <= crate::encoding::MOST_ENCODED);
}

#[test]
fn another_key_waits_for_the_end_of_a_union_and_cuts() {
    use fanpcap_select::Key;
    let two = started(&[member(1, 1), member(2, 1)]);
    let flows = Selection {
        key: Key::Flow,
        initial: 5,
    };
    let members = [member(1, 1), member(2, 2)];
    let union = begin(&two, &target(Some(&two), &members), &Nodes::default());
    let later = ChangeTarget::new(Some(&union), &members, flows, &[], None).expect("a goal");
    assert!(later.is_of(&union));
    let stable = complete(&union, |_| true).expect("an end");
    let cut = ChangeTarget::new(Some(&stable), &members, flows, &[], None).expect("a goal");
    assert!(!cut.is_of(&stable));
    let next = begin(&stable, &cut, &Nodes::default());
    assert_eq!((next.selection, next.phase()), (flows, Phase::Stable));
    // If only the initial value of the hash differs, the selection does not change.
    let other = Selection {
        initial: 9,
        ..flows
    };
    let same = ChangeTarget::new(Some(&next), &members, other, &[], None).expect("a goal");
    assert!(same.is_of(&next));
}

#[test]
fn the_papers_keys_have_the_papers_table() {
    let turns = Selection {
        key: Key::RoundRobin,
        initial: 0,
    };
    let members = [member(1, 1), member(2, 0), member(3, 9)];
    let target = ChangeTarget::new(None, &members, turns, &[], None).expect("a goal");
    let ChangeTarget(two) = target;
    assert_eq!(two.owners[..4], [0, 2, 0, 2].map(|slot| Some(Slot(slot))));
    let all = [member(1, 1), member(2, 1), member(3, 1)];
    let next = ChangeTarget::new(Some(&two), &all, turns, &[], None).expect("a goal");
    let union = begin(&two, &next, &Nodes::default());
    assert_eq!((union.check(), &union.owners), (Ok(()), &two.owners));
    assert!(next.is_of(&union));
}
