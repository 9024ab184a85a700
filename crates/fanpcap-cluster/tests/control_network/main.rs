//! Nodes and coordinators over a network in memory: joins, failures, partitions, replays.

mod network;
mod desired;
mod deaf;
mod troubles;
mod later;

use std::time::Duration;

use fanpcap_cluster::control::{
    Cause, ClusterId, Endpoint, Key, Keys, OperatorChange, OperatorEnd, Peer, Request, Role,
};
use fanpcap_cluster::{NodeEvent, NodeId, Refusal, Revision};
use network::{Network, coordinator_at, keys, node_at, part};

const SECOND: Duration = Duration::from_secs(1);

/// A network that has run until one coordinator leads, and all nodes have joined and follow a
/// topology.
fn settled(seed: u64, coordinators: usize, nodes: usize) -> (Network, usize, Revision) {
    let mut network = Network::new(seed, coordinators, nodes);
    network.run(20 * SECOND);
    let leaders = network.leaders();
    assert_eq!(leaders.len(), 1, "{leaders:?}");
    assert_eq!(live(&mut network, leaders[0]), nodes);
    let revision = network.write(leaders[0]).expect("it leads");
    network.run(SECOND);
    assert!(
        network
            .nodes
            .iter()
            .all(|node| node.follows == Some(revision))
    );
    (network, leaders[0], revision)
}

fn live(network: &mut Network, at: usize) -> usize {
    let now = network.now;
    let end = network.coordinators[at].end.as_mut();
    end.map_or(0, |end| end.view(now).live.len())
}

fn acknowledged(network: &mut Network, at: usize, revision: Revision) -> bool {
    let now = network.now;
    let view = network.coordinators[at]
        .end
        .as_mut()
        .expect("alive")
        .view(now);
    view.live
        .iter()
        .all(|live| live.acknowledged == Some(revision))
}

#[test]
fn nodes_join_and_follow() {
    let (mut network, leader, revision) = settled(1, 3, 3);
    assert!(acknowledged(&mut network, leader, revision));
    let told = [NodeEvent::Reach(true)];
    assert!(
        network
            .nodes
            .iter()
            .all(|node| node.events[..1] == told && node.events.len() == 2)
    );
    network.run(60 * SECOND);
    assert_eq!(network.leaders(), [leader]);
    assert_eq!(live(&mut network, leader), 3);
    assert!(
        network.nodes.iter().all(|node| node.events.len() == 2),
        "nothing else happens"
    );
}

#[test]
fn one_coordinator_is_enough() {
    settled(2, 1, 2);
}

#[test]
fn a_third_of_all_datagrams_may_be_lost() {
    let mut network = Network::new(3, 2, 4);
    (network.lost, network.doubled) = (333, 100);
    network.run(30 * SECOND);
    let leader = network.leaders();
    let revision = network.write(leader[0]).expect("it leads");
    network.run(15 * SECOND);
    assert!(
        network
            .nodes
            .iter()
            .all(|node| node.follows == Some(revision))
    );
}

#[test]
fn a_standby_takes_over_within_six_seconds() {
    for seed in 0..20 {
        let (mut network, leader, revision) = settled(seed, 3, 3);
        network.coordinators[leader].end = None;
        let begin = network.now;
        while network.leaders().is_empty() {
            network.run(SECOND / 20);
            assert!(network.now - begin <= 6 * SECOND);
        }
        let successor = network.leaders()[0];
        assert_eq!(live(&mut network, successor), 3, "no node counts as dead");
        let next = network.write(successor).expect("it leads");
        assert!(next > revision);
        network.run(3 * SECOND);
        assert!(network.nodes.iter().all(|node| node.follows == Some(next)));
        let never = NodeEvent::Reach(false);
        assert!(
            network
                .nodes
                .iter()
                .all(|node| !node.events.contains(&never))
        );
    }
}

#[test]
fn all_coordinators_may_die_and_come_back_with_nothing() {
    let (mut network, _, revision) = settled(5, 2, 3);
    for at in 0..2 {
        network.coordinators[at].end = None;
        network.coordinators[at].stored = None;
    }
    network.run(20 * SECOND);
    assert!(
        network
            .nodes
            .iter()
            .all(|node| node.events.last() == Some(&NodeEvent::Reach(false)))
    );
    (0..2).for_each(|at| network.start_coordinator(at));
    network.run(25 * SECOND);
    let leader = network.leaders()[0];
    let now = network.now;
    let view = network.coordinators[leader]
        .end
        .as_mut()
        .expect("alive")
        .view(now);
    let told = view.topology.as_ref().map(|(revision, _)| *revision);
    assert_eq!(
        (told, view.live.len()),
        (Some(revision), 3),
        "nodes sent the topology"
    );
    assert!(network.write(leader).expect("it leads") > revision);
}

#[test]
fn nodes_that_fall_silent_are_offline_after_fifteen_seconds() {
    let (mut network, leader, _) = settled(6, 1, 3);
    network.nodes[1].end = None;
    network.run(9 * SECOND);
    assert_eq!(live(&mut network, leader), 3);
    network.run(7 * SECOND);
    assert_eq!(live(&mut network, leader), 2);
    let end = network.nodes[2].end.as_mut().expect("alive");
    end.leave();
    network.nodes[2]
        .end
        .as_mut()
        .expect("alive")
        .outgoing()
        .expect("the node says that it leaves");
}

#[test]
fn of_two_machines_with_one_id_the_first_stays() {
    let (mut network, leader, _) = settled(7, 1, 3);
    network.start_node_as(2, 1);
    network.nodes[2].events.clear();
    network.run(5 * SECOND);
    assert_eq!(
        network.nodes[2].events,
        [NodeEvent::Refused(Refusal::TakenId)]
    );
    let first = network.nodes[0].end.as_ref().and_then(|end| end.leader());
    assert!(
        first.is_some(),
        "the first machine with the node id stays in the cluster"
    );
    network.nodes[0].end = None;
    network.run(25 * SECOND);
    assert!(network.nodes[2].events.contains(&NodeEvent::Reach(true)));
    assert_eq!(live(&mut network, leader), 2);
}

#[test]
fn an_agent_that_starts_again_is_in_at_once() {
    let (mut network, leader, revision) = settled(8, 1, 2);
    network.start_node(0);
    network.run(SECOND / 2);
    assert_eq!(network.nodes[0].follows, Some(revision));
    assert_eq!(live(&mut network, leader), 2);
}

#[test]
fn of_two_leaders_the_one_of_the_lesser_term_steps_down() {
    let (mut network, leader, first) = settled(9, 2, 4);
    part(&mut network, &[leader], &[0, 1]);
    network.run(8 * SECOND);
    assert_eq!(network.leaders().len(), 2, "each side has a leader");
    let old = network.write(leader).expect("it leads its side");
    let new = network.write(1 - leader).expect("it leads its side");
    network.run(20 * SECOND);
    assert!(new > old && old > first);
    let follow = |network: &Network| [0, 1, 2, 3].map(|at| network.nodes[at].follows);
    assert_eq!(
        follow(&network),
        [Some(old), Some(old), Some(new), Some(new)]
    );
    network.cut.clear();
    network.run(20 * SECOND);
    assert_eq!(network.leaders(), [1 - leader]);
    assert_eq!(live(&mut network, 1 - leader), 4);
    assert_eq!(follow(&network), [Some(new); 4]);
}

#[test]
fn nodes_tell_a_standby_that_hears_no_leader_who_leads() {
    let (mut network, leader, _) = settled(10, 2, 3);
    network.cut.insert((coordinator_at(0), coordinator_at(1)));
    for _ in 0..600 {
        network.run(SECOND / 10);
        assert_eq!(network.leaders(), [leader]);
    }
    let revision = network.write(leader).expect("it leads");
    network.run(3 * SECOND);
    let follows: Vec<_> = network.nodes.iter().map(|node| node.follows).collect();
    assert_eq!(follows, [Some(revision); 3]);
    network.coordinators[leader].end = None;
    network.run(8 * SECOND);
    assert_eq!(network.leaders(), [1 - leader]);
}

#[test]
fn nothing_that_was_ever_sent_can_be_sent_again() {
    let mut network = Network::new(11, 2, 3);
    network.log = Some(Vec::new());
    network.run(20 * SECOND);
    let leader = network.leaders()[0];
    network.write(leader).expect("it leads");
    network.run(10 * SECOND);
    let last = network.write(leader).expect("it leads");
    network.run(10 * SECOND);
    let log = network.log.take().expect("the network kept the log");
    // The attacker first sends all datagrams again to the participants that received them.
    let told: Vec<_> = network.nodes.iter().map(|node| node.events.len()).collect();
    for (from, to, datagram) in &log {
        network.hand(*from, *to, datagram);
    }
    network.run(5 * SECOND);
    assert_eq!(
        told,
        network
            .nodes
            .iter()
            .map(|node| node.events.len())
            .collect::<Vec<_>>()
    );
    let end = network.coordinators[leader].end.as_ref().expect("alive");
    assert!(end.refused(Cause::Replay) > 20);
    // Then the attacker sends these datagrams to a coordinator and a node that have just started
    // and remember nothing. All other participants are gone.
    network.nodes.iter_mut().for_each(|node| node.end = None);
    network
        .coordinators
        .iter_mut()
        .for_each(|one| (one.end, one.stored) = (None, None));
    network.run(SECOND);
    network.start_coordinator(leader);
    network.start_node(0);
    network.nodes[0].events.clear();
    network.cut.insert((coordinator_at(leader), node_at(0)));
    network.run(19 * SECOND);
    network.cut.clear();
    for (from, to, datagram) in &log {
        network.hand(*from, *to, datagram);
    }
    assert_eq!(
        network.nodes[0].end.as_mut().and_then(|end| end.event()),
        None
    );
    assert_eq!(
        live(&mut network, leader),
        0,
        "repeated datagrams make no node count as alive"
    );
    assert!(network.nodes[0].follows < Some(last));
}

#[test]
fn without_the_key_nobody_is_heard() {
    let (mut network, leader, revision) = settled(12, 1, 2);
    let strange = Keys {
        current: Key::new(vec![8; 32]).expect("32 bytes"),
        other: None,
    };
    let operator = Peer {
        role: Role::Operator,
        id: 1,
    };
    let endpoint = Endpoint::new(operator, ClusterId(1), strange, [1; 32]);
    let change = Request::OperatorChange(OperatorChange::Drain(NodeId(1)));
    let mut forger = OperatorEnd::new(vec![coordinator_at(leader)], endpoint, change);
    for _ in 0..10 {
        network.run(SECOND);
        forger.tick(network.now);
        while let Some((to, datagram)) = forger.outgoing() {
            network.hand(node_at(9), to, &datagram);
        }
    }
    let now = network.now;
    let end = network.coordinators[leader].end.as_mut().expect("alive");
    assert_eq!(end.refused(Cause::Seal) + end.refused(Cause::Key), 10);
    assert!(end.view(now).desired.drained.is_empty());
    assert_eq!(network.nodes[0].follows, Some(revision));
}

#[test]
fn keys_are_changed_while_all_goes_on() {
    let (mut network, leader, revision) = settled(14, 1, 2);
    let key = |id: u8| Key::new(vec![id + 6; 32]).expect("32 bytes");
    let both = |current, other| Keys {
        current,
        other: Some(other),
    };
    assert_eq!(keys().current.id(), key(1).id());
    for step in [both(key(1), key(2)), both(key(2), key(1))] {
        for node in &mut network.nodes {
            node.end
                .as_mut()
                .expect("alive")
                .endpoint_mut()
                .set_keys(step.clone());
        }
        network.run(7 * SECOND);
        let end = network.coordinators[leader].end.as_mut().expect("alive");
        end.endpoint_mut().set_keys(step);
        network.run(16 * SECOND);
    }
    assert_eq!(live(&mut network, leader), 2);
    assert!(acknowledged(&mut network, leader, revision));
}

#[test]
fn a_version_speaks_with_the_one_before_it_and_no_older_one() {
    let (mut network, leader, revision) = settled(15, 1, 3);
    for (at, version) in [(0, 2), (1, 3)] {
        network.start_node_of(at, version);
        network.nodes[at].events.clear();
    }
    network.run(10 * SECOND);
    assert_eq!(network.nodes[0].follows, Some(revision));
    let refused = [NodeEvent::Refused(Refusal::Version)];
    assert_eq!(network.nodes[1].events, refused);
    network.run(10 * SECOND);
    assert_eq!(
        live(&mut network, leader),
        2,
        "the refused node's agent is gone"
    );
}

/// Whatever happens, no node goes back to an older topology, and no revision is given twice. The
/// network asserts both. When all faults are over, one coordinator leads and all nodes follow it.
fn chaos(seed: u64) {
    let mut network = Network::new(seed, 3, 4);
    (network.lost, network.doubled) = (network.below(300), network.below(100));
    for _ in 0..25 {
        let time = SECOND * u32::try_from(network.below(8)).expect("small");
        network.run(time);
        let at = usize::try_from(network.below(3)).expect("small");
        match network.below(8) {
            0 => network.coordinators[at].end = None,
            1 => {
                network.coordinators[at].stored = None;
                network.start_coordinator(at);
            }
            2 => network.start_coordinator(at),
            3 => network.start_node(at),
            4 => network.nodes[at].end = None,
            5 => part(&mut network, &[at], &[at, at + 1]),
            6 => network.cut.clear(),
            _ => {}
        }
        for at in network.leaders() {
            network.write(at);
        }
    }
    network.cut.clear();
    (network.lost, network.doubled) = (0, 0);
    for at in 0..3 {
        if network.coordinators[at].end.is_none() {
            network.start_coordinator(at);
        }
    }
    for at in 0..4 {
        if network.nodes[at].end.is_none() {
            network.start_node(at);
        }
    }
    network.run(40 * SECOND);
    let leaders = network.leaders();
    assert_eq!(leaders.len(), 1, "seed {seed}: {leaders:?}");
    assert_eq!(live(&mut network, leaders[0]), 4, "seed {seed}");
    let revision = network.write(leaders[0]);
    network.run(5 * SECOND);
    let follows: Vec<_> = network.nodes.iter().map(|node| node.follows).collect();
    assert_eq!(follows, [revision; 4], "seed {seed}");
    let now = network.now;
    let end = network.coordinators[leaders[0]]
        .end
        .as_mut()
        .expect("alive");
    let live = &end.view(now).live;
    let follows: Vec<_> = live.iter().map(|live| live.acknowledged).collect();
    assert_eq!(follows, [revision; 4], "seed {seed} {live:?}");
}

/// `FANPCAP_RUNS` sets the number of runs; without it, there are 12.
#[test]
fn after_any_faults_all_nodes_follow_one() {
    let runs = std::env::var("FANPCAP_RUNS").ok();
    let runs = runs.map_or(12, |text| text.parse().expect("a number"));
    (0..runs).for_each(chaos);
}
