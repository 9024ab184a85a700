//! What a node loads, acknowledges and refuses.

use super::*;
use crate::topology::NodeEntry;
use fanpcap_buckets::layout::BUCKETS;

/// A topology with one node, which has all buckets.
fn alone(epoch: u64, node: u32) -> Box<Topology> {
    Box::new(Topology {
        epoch,
        selection: Selection::default(),
        nodes: vec![NodeEntry {
            slot: Slot(3),
            node: NodeId(node),
            weight: 1,
        }],
        owners: Box::new([Some(Slot(3)); BUCKETS]),
        new_owners: None,
        analyzers: Vec::new(),
        filter: None,
    })
}

fn offer(node: &mut Node, revision: u64, topology: Box<Topology>) -> Vec<Command> {
    node.take(NodeEvent::Topology(Revision(revision), topology))
}

/// The revision and the number of buckets in the only command, which must be a load.
fn load(commands: &[Command]) -> (u64, usize) {
    match commands {
        [Command::Load(assignment)] => (assignment.revision.0, assignment.claims.count()),
        other => panic!("not a load: {other:?}"),
    }
}

#[test]
fn a_node_loads_acknowledges_and_refuses_what_is_older() {
    let mut node = Node::new(NodeId(7), None);
    assert_eq!(load(&offer(&mut node, 5, alone(1, 7))), (5, BUCKETS));
    assert_eq!(node.current(), None);
    // The engine may send a topology twice.
    assert_eq!(offer(&mut node, 5, alone(1, 7)), []);
    let acknowledged = [Command::Acknowledge(Revision(5))];
    assert_eq!(node.note_loaded(Revision(5)), acknowledged);
    assert_eq!(offer(&mut node, 5, alone(1, 7)), acknowledged);
    let older = NodeNotice::Older {
        offered: Revision(4),
        newest: Revision(5),
    };
    let said = [Command::Say(older), Command::Acknowledge(Revision(5))];
    assert_eq!(offer(&mut node, 4, alone(9, 7)), said);
    let ambiguous = Command::Say(NodeNotice::Ambiguous(Revision(5)));
    assert_eq!(offer(&mut node, 5, alone(2, 7)), [ambiguous]);
    assert_eq!(node.current(), Some(Revision(5)));
}

#[test]
fn what_comes_during_a_load_is_loaded_next() {
    let mut node = Node::new(NodeId(7), None);
    assert_eq!(load(&offer(&mut node, 5, alone(1, 7))), (5, BUCKETS));
    assert_eq!(offer(&mut node, 6, alone(2, 7)), []);
    assert_eq!(offer(&mut node, 8, alone(3, 7)), []);
    let commands = node.note_loaded(Revision(5));
    assert_eq!(commands[0], Command::Acknowledge(Revision(5)));
    assert_eq!(load(&commands[1..]), (8, BUCKETS));
    assert_eq!(node.note_loaded(Revision(8)).len(), 1);
}

#[test]
fn a_node_that_is_cut_off_refused_or_misled_goes_on() {
    let mut node = Node::new(NodeId(7), None);
    offer(&mut node, 5, alone(1, 7));
    node.note_loaded(Revision(5));
    let mut bad = alone(2, 7);
    bad.owners[77] = None;
    let refused = NodeNotice::Bad(Revision(6), TopologyError::Owners);
    assert_eq!(offer(&mut node, 6, bad), [Command::Say(refused)]);
    let events = [
        NodeEvent::Refused(Refusal::TakenId),
        NodeEvent::Reach(false),
    ];
    for event in events {
        let commands = node.take(event);
        assert!(matches!(commands[..], [Command::Say(_)]), "{commands:?}");
    }
    let back = node.take(NodeEvent::Reach(true));
    assert_eq!(back[1..], [Command::Acknowledge(Revision(5))]);
    // The node still accepts a valid topology of the same revision.
    assert_eq!(load(&offer(&mut node, 6, alone(2, 7))), (6, BUCKETS));
}

#[test]
fn a_newer_topology_without_the_node_takes_all_from_it() {
    let mut node = Node::new(NodeId(7), None);
    offer(&mut node, 5, alone(1, 7));
    node.note_loaded(Revision(5));
    let commands = offer(&mut node, 6, alone(2, 8));
    assert_eq!(commands[0], Command::Say(NodeNotice::Unseated(Revision(6))));
    assert_eq!(load(&commands[1..]), (6, 0));
}

#[test]
fn a_restarted_agent_loads_the_same_topology_again_and_none_that_is_older() {
    let mut node = Node::new(NodeId(7), Some(Revision(5)));
    let older = offer(&mut node, 4, alone(1, 7));
    assert!(matches!(
        older[..],
        [
            Command::Say(NodeNotice::Older { .. }),
            Command::Acknowledge(Revision(5))
        ]
    ));
    assert_eq!(load(&offer(&mut node, 5, alone(2, 7))), (5, BUCKETS));
    node.note_loaded(Revision(5));
    assert_eq!(offer(&mut node, 5, alone(2, 7)).len(), 1);
}

#[test]
fn a_load_that_failed_is_tried_again() {
    let mut node = Node::new(NodeId(7), None);
    offer(&mut node, 5, alone(1, 7));
    let now = Duration::from_secs(60);
    let said = node.note_load_failure(Revision(5), now);
    assert_eq!(said, [Command::Say(NodeNotice::NotLoaded(Revision(5)))]);
    assert_eq!(node.tick(now), []);
    assert_eq!(load(&node.tick(now + RETRY)), (5, BUCKETS));
    assert_eq!(node.tick(now + RETRY * 2), []);
}
