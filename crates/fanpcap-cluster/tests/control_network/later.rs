//! A topology that a later version has written. Participants that can't read this topology report
//! this, and none of them replaces the topology.

use fanpcap_cluster::control::{Body, Reply, Request};
use fanpcap_cluster::{ANALYZERS, NodeEvent, NodeId, Revision, Topology, WriteError};

use crate::desired::ask;
use crate::network::{Network, coordinator_at, topology};
use crate::troubles::forge;
use crate::{SECOND, settled};

/// A topology that can't be read, because it has too many analyzers. In these tests it stands for a
/// topology of a later version.
fn later() -> Box<Topology> {
    Box::new(Topology {
        analyzers: vec![coordinator_at(8); ANALYZERS + 1],
        ..topology(9, &[NodeId(1)])
    })
}

/// Starts a coordinator whose stored topology can't be read: see `later`. Returns the topology's
/// revision.
fn start_later(network: &mut Network, at: usize) -> Revision {
    let mut state = network.coordinators[at].stored.clone();
    let topology = state.as_mut().map(|state| &mut state.topology);
    let topology = topology.expect("it has stored");
    let last = topology.as_ref().map_or(0, |(revision, _)| revision.0);
    let revision = Revision(last + 1);
    *topology = Some((revision, later()));
    network.coordinators[at].stored = state;
    network.start_coordinator(at);
    revision
}

fn unreadable(network: &Network, at: usize) -> Option<Revision> {
    network.coordinators[at].end.as_ref()?.unreadable()
}

/// The revision of the topology in a coordinator's view.
fn known(network: &mut Network, at: usize) -> Option<Revision> {
    let now = network.now;
    let view = network.coordinators[at].end.as_mut()?.view(now);
    view.topology.as_ref().map(|(revision, _)| *revision)
}

#[test]
fn nodes_and_commands_that_cannot_read_a_topology_say_so() {
    let (mut network, ..) = settled(5, 1, 2);
    let denied = |network: &Network| {
        let events = network.nodes[0].events.iter();
        let denied = events.filter_map(|event| {
            if let NodeEvent::Denied(said) = event {
                Some(said.clone())
            } else {
                None
            }
        });
        denied.collect::<Vec<_>>()
    };
    for times in 1..=2 {
        network.coordinators[0].end = None;
        let revision = start_later(&mut network, 0);
        network.run(60 * SECOND);
        let said = denied(&network);
        assert_eq!(said.len(), times, "many copies are sent: {said:?}");
        let last = &said[times - 1];
        assert!(last.starts_with(&format!(
            "topology {revision} can't be read: a later version of fanpcap has written it"
        )));
        let reply = ask(&mut network, Request::Status);
        assert_eq!(reply, Some(Reply::Unreadable(revision)));
        let next = network.write(0).expect("it leads");
        network.run(3 * SECOND);
        assert_eq!(network.nodes[0].follows, Some(next));
    }
}

#[test]
fn a_standby_that_cannot_read_the_topology_leaves_the_lead_to_others() {
    let (mut network, leader, old) = settled(5, 2, 3);
    let standby = 1 - leader;
    (0..2).for_each(|at| network.coordinators[at].end = None);
    let revision = start_later(&mut network, leader);
    network.run(15 * SECOND);
    network.start_coordinator(standby);
    network.run(5 * SECOND);
    assert_eq!(network.leaders(), [leader]);
    assert_eq!(unreadable(&network, standby), Some(revision));
    // The leader is started again.
    network.coordinators[leader].end = None;
    network.run(9 * SECOND);
    assert!(!network.coordinators[standby].leads());
    network.start_coordinator(leader);
    network.run(8 * SECOND);
    assert_eq!(network.leaders(), [leader]);
    // The leader is gone for 30 s. The standby, which leads meanwhile, plans nothing, but reports
    // the status.
    network.coordinators[leader].end = None;
    network.run(30 * SECOND);
    assert!(network.coordinators[standby].leads());
    assert_eq!((network.leaders(), network.write(standby)), (vec![], None));
    assert_eq!(known(&mut network, standby), Some(old));
    assert!(matches!(
        ask(&mut network, Request::Status),
        Some(Reply::Status(_))
    ));
    network.start_coordinator(leader);
    network.run(10 * SECOND);
    assert_eq!(network.leaders(), [leader]);
    assert_eq!(known(&mut network, leader), Some(revision));
}

#[test]
fn a_leader_resigns_if_another_shows_a_topology_that_it_cannot_read() {
    for seed in 0..4 {
        let (mut network, other, _) = settled(seed, 2, 3);
        network.coordinators[other].end = None;
        network.run(8 * SECOND);
        assert_eq!(network.leaders(), [1 - other]);
        let revision = start_later(&mut network, other);
        network.run(10 * SECOND);
        assert_eq!(network.leaders(), [other], "seed {seed}");
        assert_eq!(known(&mut network, other), Some(revision));
        // The leader writes a topology that all coordinators can read. Then the other coordinator
        // no longer reports an unreadable topology.
        let next = network.write(other).expect("it leads");
        network.run(5 * SECOND);
        assert_eq!(unreadable(&network, 1 - other), None);
        assert_eq!(known(&mut network, 1 - other), Some(next));
    }
}

#[test]
fn a_sole_coordinator_writes_nothing_over_a_topology_that_it_cannot_read() {
    let (mut network, leader, old) = settled(5, 1, 1);
    let newer = Revision(old.0 + 1);
    let shown = Body::TopologyUpdate(newer, later());
    forge(&mut network, coordinator_at(leader), &shown);
    assert_eq!(unreadable(&network, leader), Some(newer));
    network.run(40 * SECOND);
    assert!(network.leaders().is_empty());
    let now = network.now;
    let end = network.coordinators[leader].end.as_mut().expect("alive");
    let written = end.write(now, &topology(9, &[NodeId(1)]), Some(old));
    assert!(matches!(written, Err(WriteError::NotLeading)));
}
