//! Faults that must be reported: lost files, full disks, wrong clocks, and too many changes.

use std::net::SocketAddr;
use std::time::Duration;

use fanpcap_cluster::control::{
    Body, Cause, CoordinatorEnd, Incoming, Key, Keys, Leader, OperatorChange, Refused, Reply,
    Request, Role, State, Term, TooManyChanges,
};
use fanpcap_cluster::{Announcement, NodeEvent, NodeId, Refusal, Revision, WriteError};

use crate::desired::ask;
use crate::network::{Network, coordinator_at, node_at, part};
use crate::{SECOND, settled};

/// The coordinators have lost their files, and the agents have restarted. Only the nodes' kernels
/// still have the tables by which they capture.
#[test]
fn a_topology_that_nobody_can_show_is_planned_without() {
    let (mut network, _, revision) = settled(5, 2, 3);
    for at in 0..2 {
        network.coordinators[at].end = None;
        network.coordinators[at].stored = None;
    }
    for at in 0..3 {
        network.start_node(at);
        network.nodes[at].follows = Some(revision);
        let end = network.nodes[at].end.as_mut().expect("alive");
        end.acknowledge(revision);
    }
    (0..2).for_each(|at| network.start_coordinator(at));
    network.run(30 * SECOND);
    let leaders = network.leaders();
    assert_eq!(leaders.len(), 1);
    let next = network.write(leaders[0]).expect("it leads");
    network.run(3 * SECOND);
    assert!(next > revision);
    assert!(network.nodes.iter().all(|node| node.follows == Some(next)));
}

/// The coordinators' files are old copies. No node may go back to the topology of these copies.
#[test]
fn an_old_topology_is_not_given_out_while_a_newer_one_is_followed() {
    let (mut network, leader, old) = settled(5, 2, 3);
    let copies = [0, 1].map(|at| network.coordinators[at].stored.clone());
    let newer = network.write(leader).expect("it leads");
    network.run(3 * SECOND);
    for (at, copy) in copies.into_iter().enumerate() {
        network.coordinators[at].end = None;
        network.coordinators[at].stored = copy;
    }
    for at in 0..3 {
        network.start_node(at);
        network.nodes[at].follows = None;
    }
    for at in 0..2 {
        network.nodes[at].follows = Some(newer);
        let end = network.nodes[at].end.as_mut().expect("alive");
        end.acknowledge(newer);
    }
    (0..2).for_each(|at| network.start_coordinator(at));
    network.run(30 * SECOND);
    let follows: Vec<_> = network.nodes.iter().map(|node| node.follows).collect();
    assert_eq!(follows, [Some(newer), Some(newer), None], "{old} is old");
    // No coordinator and no agent still has the contents of the newer topology. So the leader
    // writes the old one again, and all nodes follow it.
    let leader = network.leaders()[0];
    let is_outrun = |network: &mut Network| {
        let now = network.now;
        let end = network.coordinators[leader].end.as_mut();
        end.map(|end| end.view(now).is_outrun)
    };
    assert_eq!(is_outrun(&mut network), Some(true));
    let again = network.write(leader).expect("it leads");
    assert_eq!(is_outrun(&mut network), Some(false));
    network.run(5 * SECOND);
    assert!(network.nodes.iter().all(|node| node.follows == Some(again)));
}

/// An attacker delays heartbeats until the node has announced another weight.
#[test]
fn a_heartbeat_that_others_have_overtaken_says_nothing() {
    let (mut network, leader, _) = settled(18, 1, 2);
    let (node, coordinator) = (node_at(0), coordinator_at(leader));
    part(&mut network, &[], &[0]);
    network.log = Some(Vec::new());
    network.run(6 * SECOND);
    network.cut.clear();
    let kept = network.log.take().expect("it is kept").into_iter();
    let kept = kept.filter(|(from, to, _)| (*from, *to) == (node, coordinator));
    let kept: Vec<_> = kept.collect();
    assert!(!kept.is_empty());
    let announcement = Announcement {
        node: NodeId(1),
        boot: network.nodes[0].boot,
        weight: 3,
        address: node,
        setup: None,
    };
    let end = network.nodes[0].end.as_mut().expect("alive");
    end.announce(announcement);
    network.run(2 * SECOND);
    let weight = |network: &mut Network| {
        let now = network.now;
        let end = network.coordinators[leader].end.as_mut().expect("alive");
        end.view(now).live[0].announcement.weight
    };
    assert_eq!(weight(&mut network), 3);
    for (from, to, datagram) in kept {
        network.hand(from, to, &datagram);
        assert_eq!(weight(&mut network), 3);
    }
}

/// The simulated network asserts that no two topologies get the same revision.
#[test]
fn no_revision_is_given_twice_where_a_lost_file_repeats_a_term() {
    let term = |network: &Network| {
        let end = network.coordinators[0].end.as_ref();
        end.and_then(CoordinatorEnd::leader).expect("it leads").term
    };
    let (mut network, ..) = settled(3, 1, 2);
    let before = term(&network);
    // All agents end, and the coordinator loses its file: so no process has the term any more.
    network.nodes.iter_mut().for_each(|node| node.end = None);
    network.coordinators[0].stored = None;
    network.start_coordinator(0);
    network.run(7 * SECOND);
    (0..2).for_each(|at| network.start_node(at));
    network.run(7 * SECOND);
    network.write(0).expect("it leads");
    assert_eq!(term(&network), before);
}

/// The agents have restarted and have no topology to send. While one coordinator was cut off, the
/// other coordinator wrote a newer topology. The writer sends this topology to the coordinator that
/// was cut off, and that coordinator then leads.
#[test]
fn a_standby_shows_a_newer_topology_than_the_leader_knows() {
    let (mut network, leader, old) = settled(5, 2, 3);
    part(&mut network, &[1 - leader], &[0]);
    let newer = network.write(leader).expect("it leads");
    network.run(20 * SECOND);
    for at in 0..3 {
        network.start_node(at);
        network.nodes[at].follows = Some(newer);
        let end = network.nodes[at].end.as_mut().expect("alive");
        end.acknowledge(newer);
    }
    network.lost = 200;
    network.cut.clear();
    let knows = |network: &mut Network| {
        let end = network.coordinators[1 - leader].end.as_mut();
        let topology = &end.expect("alive").view(network.now).topology;
        topology.as_ref().map(|(revision, _)| *revision)
    };
    let begin = network.now;
    while knows(&mut network) != Some(newer) {
        network.run(SECOND / 100);
        assert!(network.now - begin < 20 * SECOND, "it is shown in time");
    }
    assert!(network.leaders().is_empty(), "a leader hears nodes first");
    network.run(20 * SECOND);
    assert_eq!(network.leaders(), [1 - leader]);
    assert!(network.write(1 - leader) > Some(newer) && newer > old);
}

/// A coordinator with an old topology leads. The first node that it hears has restarted; the other
/// nodes follow a newer topology.
#[test]
fn a_leader_hears_the_nodes_before_it_gives_out_what_it_knew() {
    for seed in 0..5 {
        assert_eq!(restart_beside_an_old_leader(seed, 2 * SECOND), (1, 2));
    }
    // If the leader does not wait until it hears the other nodes, it may send the restarted node
    // the old topology.
    let told = (0..60).map(|seed| restart_beside_an_old_leader(seed, Duration::ZERO));
    assert!(told.max() > Some((1, 2)));
}

/// Returns how often node 2 got the old topology, and how often the newer one, in the whole run.
fn restart_beside_an_old_leader(seed: u64, settle: Duration) -> (usize, usize) {
    let (mut network, leader, old) = settled(seed, 2, 3);
    network.settle = settle;
    let copy = network.coordinators[1 - leader].stored.clone();
    network.coordinators[1 - leader].end = None;
    let newer = network.write(leader).expect("it leads");
    network.run(3 * SECOND);
    network.coordinators[leader].end = None;
    network.coordinators[1 - leader].stored = copy;
    network.start_coordinator(1 - leader);
    part(&mut network, &[0, 1], &[]);
    network.run(10 * SECOND);
    network.start_node(2);
    network.cut.clear();
    part(&mut network, &[0, 1], &[2]);
    network.run(SECOND * 4 / 5);
    network.cut.clear();
    network.run(30 * SECOND);
    assert_eq!(network.leaders(), [1 - leader]);
    let told = |of: Revision| {
        let events = network.nodes[2].events.iter();
        let told = events.filter(|event| matches!(event, NodeEvent::Topology(it, _) if *it == of));
        told.count()
    };
    (told(old), told(newer))
}

/// A coordinator whose disk is full sends no topology that it could not write to its file. Another
/// coordinator replaces it.
#[test]
fn what_is_not_stored_is_not_sent() {
    let (mut network, leader, revision) = settled(17, 2, 3);
    network.coordinators[leader].fails = true;
    let unsaid = network.write(leader).expect("it leads");
    network.run(SECOND);
    let end = network.coordinators[leader].end.as_mut().expect("alive");
    let topology = end.view(network.now).topology.clone();
    let topology = topology.map(|(_, topology)| *topology).expect("its own");
    let refused = end.write(network.now, &topology, Some(unsaid));
    assert!(matches!(refused, Err(WriteError::Unstored)));
    assert!(network.leaders().is_empty());
    assert!(
        network
            .nodes
            .iter()
            .all(|node| node.follows == Some(revision))
    );
    network.run(8 * SECOND);
    assert_eq!(network.leaders(), [1 - leader]);
    let next = network.write(1 - leader).expect("it leads");
    network.coordinators[leader].fails = false;
    network.run(8 * SECOND);
    assert_eq!(network.leaders(), [1 - leader]);
    assert!(network.nodes.iter().all(|node| node.follows == Some(next)));
}

#[test]
fn who_is_refused_is_named() {
    let (mut network, leader, _) = settled(7, 1, 3);
    network.start_node_as(2, 1);
    network.run(5 * SECOND);
    let Some(Reply::Status(mut status)) = ask(&mut network, Request::Status) else {
        panic!("no status");
    };
    assert_eq!(status.notes.pop(), None, "the driver adds the notes");
    let end = network.coordinators[leader].end.as_mut().expect("alive");
    let refused = end.refused_machines();
    let clone = Refused {
        node: NodeId(1),
        address: node_at(2),
        why: Refusal::TakenId,
    };
    assert_eq!(refused, [clone]);
    end.set_notes(refused.iter().map(ToString::to_string).collect());
    let Some(Reply::Status(status)) = ask(&mut network, Request::Status) else {
        panic!("no status");
    };
    let note = "the machine at 10.0.1.3:7000, node 00000001, is refused: another machine";
    assert!(status.notes[0].starts_with(note), "{:?}", status.notes);
}

/// Sends `body` to an address as coordinator 9, sealed with the key.
pub(super) fn forge(network: &mut Network, to: SocketAddr, body: &Body) {
    let mut forger = network.endpoint(Role::Coordinator, 9);
    let from = coordinator_at(9);
    let mut challenges = Vec::new();
    for round in 0..2 {
        for datagram in forger.seal(None, body, round) {
            network.hand(from, to, &datagram);
        }
        for at in 0..network.coordinators.len() {
            let mut end = network.coordinators[at].end.as_mut();
            challenges.extend(std::iter::from_fn(|| end.as_mut()?.outgoing()));
        }
        for node in &mut network.nodes {
            let mut end = node.end.as_mut();
            challenges.extend(std::iter::from_fn(|| end.as_mut()?.outgoing()));
        }
        for (_, challenge) in challenges.drain(..).filter(|(to, _)| *to == from) {
            if let Ok(Incoming::Challenged(peer)) = forger.open(network.now, &challenge) {
                for datagram in forger.seal(Some(peer), body, round) {
                    network.hand(from, to, &datagram);
                }
            }
        }
    }
}

#[test]
fn a_term_that_no_coordinator_can_have_moves_nobody() {
    let (mut network, leader, revision) = settled(16, 2, 2);
    let wild = Leader {
        number: 9,
        term: Term(u32::MAX),
        address: coordinator_at(9),
    };
    for to in [coordinator_at(0), coordinator_at(1), node_at(0), node_at(1)] {
        forge(&mut network, to, &Body::Pulse(wild, 7));
        forge(&mut network, to, &Body::Announce(wild));
    }
    let refused = |network: &Network, at: usize| {
        let end = network.coordinators[at].end.as_ref();
        end.map(|end| end.refused(Cause::Term))
    };
    assert!(refused(&network, 0) > Some(0) && refused(&network, 1) > Some(0));
    network.run(10 * SECOND);
    assert_eq!(network.leaders(), [leader]);
    assert!(network.write(leader) > Some(revision));
    network.coordinators[leader].end = None;
    network.run(8 * SECOND);
    assert_eq!(
        network.leaders(),
        [1 - leader],
        "there still is a greater term"
    );
}

#[test]
fn a_change_too_many_is_refused_and_all_others_stand() {
    let (mut network, _, _) = settled(13, 1, 1);
    for node in 0..128 {
        let change = Request::OperatorChange(OperatorChange::Drain(NodeId(node)));
        assert_eq!(ask(&mut network, change), Some(Reply::Granted));
    }
    let change = Request::OperatorChange(OperatorChange::Drain(NodeId(128)));
    assert_eq!(
        ask(&mut network, change),
        Some(Reply::Refused(TooManyChanges))
    );
    let stored = network.coordinators[0].stored.as_ref().map(State::encode);
    let read = stored.map(|bytes| State::decode(&bytes));
    let read = read
        .expect("it has stored")
        .expect("it reads what it stored");
    assert_eq!(read.desired.drained.len(), 128);
}

/// An attacker without the key repeats each answer of the coordinator to the node, from another
/// address, before the answer arrives.
#[test]
fn answers_from_elsewhere_do_not_draw_heartbeats_there() {
    for elsewhere in [node_at(1), coordinator_at(7)] {
        let (mut network, leader, _) = settled(5, 1, 2);
        let mut raced = 0;
        for _ in 0..4000 {
            network.log = Some(Vec::new());
            network.run(SECOND / 100);
            let log = network.log.take().expect("it is kept");
            let acknowledgements = log
                .into_iter()
                .filter(|(from, to, _)| (*from, *to) == (coordinator_at(leader), node_at(0)));
            for (_, to, answer) in acknowledgements {
                network.hand(elsewhere, to, &answer);
                raced += 1;
            }
            assert_eq!(crate::live(&mut network, leader), 2, "{:?}", network.now);
        }
        assert!(raced >= 6, "{raced}");
        let lost = NodeEvent::Reach(false);
        assert!(!network.nodes[0].events.contains(&lost));
    }
}

#[test]
fn a_node_that_never_reached_a_coordinator_says_so_once() {
    for has_other_key in [false, true] {
        let (mut network, ..) = settled(5, 2, 2);
        network.log = Some(Vec::new());
        network.run(2 * SECOND);
        let (from, _, datagram) = network.log.take().expect("it is kept").remove(0);
        network.start_node(1);
        network.nodes[1].events.clear();
        if has_other_key {
            let current = Key::new(vec![9; 32]).expect("32 bytes");
            let end = network.nodes[1].end.as_mut().expect("it runs");
            end.endpoint_mut().set_keys(Keys {
                current,
                other: None,
            });
            network.hand(from, node_at(1), &datagram);
        } else {
            part(&mut network, &[], &[1]);
        }
        network.run(14 * SECOND);
        assert_eq!(network.nodes[1].events, []);
        network.run(40 * SECOND);
        let [NodeEvent::Denied(said)] = &network.nodes[1].events[..] else {
            panic!("{:?}", network.nodes[1].events);
        };
        let came = match has_other_key {
            true => "(refused messages: 1 sealed with another key)",
            false => "(nothing came from any)",
        };
        assert!(said.contains(came), "{said}");
    }
}
