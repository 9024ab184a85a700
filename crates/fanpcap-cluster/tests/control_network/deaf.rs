//! Coordinators that can send but not receive, and standbys that nodes ask because the leader does
//! not answer.

use fanpcap_cluster::NodeEvent;

use crate::network::{Network, coordinator_at, node_at};
use crate::{SECOND, live, settled};

/// The leader can send, but receives nothing. A node dies at the same time, and the new leader
/// notices the death.
#[test]
fn a_leader_that_hears_nothing_is_replaced_within_six_seconds() {
    for seed in 0..40 {
        let (mut network, leader, _) = settled(seed, 2 + usize::from(seed % 2 == 0), 3);
        network.deaf.insert(coordinator_at(leader));
        network.nodes[1].end = None;
        let begin = network.now;
        let successor = |network: &mut Network| {
            let mut others = network.leaders().into_iter();
            others.find(|other| *other != leader)
        };
        while successor(&mut network).is_none() {
            network.run(SECOND / 20);
            assert!(network.now - begin <= 6 * SECOND, "seed {seed}");
        }
        let new_owner = successor(&mut network).expect("it leads");
        while live(&mut network, new_owner) > 2 {
            network.run(SECOND / 20);
            assert!(network.now - begin <= 20 * SECOND, "seed {seed}");
        }
        let next = network.write(new_owner).expect("it leads");
        network.run(60 * SECOND);
        assert_eq!(
            network.leaders(),
            [new_owner],
            "seed {seed}: only the new leader leads"
        );
        assert_eq!(network.nodes[0].follows, Some(next));
        network.deaf.clear();
        network.run(20 * SECOND);
        assert_eq!(
            network.leaders(),
            [new_owner],
            "the new leader keeps the lead"
        );
    }
}

/// The leader and the standby hear each other, but nodes can't hear the leader.
#[test]
fn a_standby_that_nodes_ask_in_vain_takes_over() {
    for (seed, cut) in [(31, 3), (32, 2), (33, 4)] {
        let (mut network, leader, _) = settled(seed, 2, 4);
        for at in 0..cut {
            network.cut.insert((coordinator_at(leader), node_at(at)));
        }
        let begin = network.now;
        while network.leaders() != [1 - leader] {
            network.run(SECOND / 20);
            assert!(network.now - begin <= 20 * SECOND, "seed {seed}");
        }
        network.run(10 * SECOND);
        assert_eq!(live(&mut network, 1 - leader), 4);
        network.run(60 * SECOND);
        assert_eq!(
            network.leaders(),
            [1 - leader],
            "seed {seed}: the new leader keeps the lead"
        );
    }
}

/// The only standby is dead, and the only node sends a message every five seconds.
#[test]
fn a_leader_with_one_node_and_no_standby_leads_on() {
    let (mut network, leader, _) = settled(34, 2, 1);
    network.coordinators[1 - leader].end = None;
    leads_on(&mut network, leader, 60);
}

/// The leader restarts. The nodes reach this coordinator, but not the coordinators that led during
/// the restart.
#[test]
fn nodes_of_a_deposed_leader_ask_it_to_lead() {
    for (seed, coordinators) in [(35, 2), (36, 2), (37, 3), (38, 3)] {
        let (mut network, leader, _) = settled(seed, coordinators, 4);
        for other in (0..coordinators).filter(|other| *other != leader) {
            for at in 0..4 {
                let pair = (coordinator_at(other), node_at(at));
                network.cut.insert(pair);
            }
        }
        network.coordinators[leader].end = None;
        network.run(6 * SECOND);
        network.start_coordinator(leader);
        let begin = network.now;
        while network.leaders() != [leader] {
            network.run(SECOND / 20);
            assert!(network.now - begin <= 20 * SECOND, "seed {seed}");
        }
        assert_eq!(live(&mut network, leader), 4, "seed {seed}");
        let next = network.write(leader).expect("it leads");
        network.run(10 * SECOND);
        assert_eq!(network.leaders(), [leader], "seed {seed}");
        assert!(network.nodes.iter().all(|node| node.follows == Some(next)));
    }
}

/// The three coordinators hear each other. Two nodes reach only one standby.
#[test]
fn one_of_two_standbys_is_asked_and_takes_over() {
    for seed in 40..46 {
        let (mut network, leader, _) = settled(seed, 3, 4);
        let asked = (0..3).rfind(|at| *at != leader).expect("two stand by");
        let asked = if seed % 2 == 0 {
            asked
        } else {
            3 - leader - asked
        };
        for other in (0..3).filter(|other| *other != asked) {
            for at in 0..2 {
                network.cut.insert((coordinator_at(other), node_at(at)));
            }
        }
        takes_over(&mut network, &[asked]);
    }
}

#[test]
fn two_standbys_are_asked_and_one_takes_over() {
    for seed in 50..56 {
        let (mut network, leader, _) = settled(seed, 3, 4);
        for at in 0..2 {
            network.cut.insert((coordinator_at(leader), node_at(at)));
        }
        let asked: Vec<usize> = (0..3).filter(|at| *at != leader).collect();
        takes_over(&mut network, &asked);
    }
}

/// Checks that one of the `asked` coordinators takes over, serves all nodes and keeps the lead,
/// without a flood of datagrams.
fn takes_over(network: &mut Network, asked: &[usize]) {
    let begin = network.now;
    let new_owner = loop {
        let sent = network.sent;
        network.run(SECOND);
        assert!(
            network.sent - sent < 200,
            "{} datagrams",
            network.sent - sent
        );
        assert!(network.now - begin <= 20 * SECOND, "nobody takes over");
        match network.leaders()[..] {
            [new_owner] if asked.contains(&new_owner) && live(network, new_owner) == 4 => {
                break new_owner;
            }
            _ => {}
        }
    };
    for _ in 0..60 {
        let sent = network.sent;
        network.run(SECOND);
        assert!(
            network.sent - sent < 200,
            "{} datagrams",
            network.sent - sent
        );
        assert_eq!(
            (network.leaders(), live(network, new_owner)),
            (vec![new_owner], 4)
        );
    }
}

/// The standby with the shorter wait does not hear the leader. The node hears both coordinators.
#[test]
fn a_standby_asks_a_node_twice_before_it_stands() {
    for seed in 60..90 {
        let (mut network, leader, _) = settled(seed, 2, 1);
        let later = 1;
        if leader != later {
            network.coordinators[0].end = None;
            network.run(10 * SECOND);
            network.start_coordinator(0);
            network.run(5 * SECOND);
        }
        assert_eq!(network.leaders(), [later]);
        network.cut.insert((coordinator_at(0), coordinator_at(1)));
        let phase = network.below(5000);
        network.run(SECOND * u32::try_from(phase).expect("small") / 1000);
        for _ in 0..100 {
            network.run(SECOND / 10);
            assert_eq!(network.leaders(), [later], "seed {seed}");
        }
    }
}

/// The leader's machine stands still, and the only standby is dead.
#[test]
fn a_leader_that_stood_still_strikes_out_nobody() {
    for (seed, pause) in [(100, 3_u32), (101, 5), (102, 20), (103, 60)] {
        let (mut network, leader, _) = settled(seed, 2, 3);
        network.coordinators[1 - leader].end = None;
        network.coordinators[leader].stopped = network.now + SECOND * pause;
        let began = network.now + SECOND * pause;
        network.run(SECOND * pause);
        assert!(network.leaders().is_empty(), "another leader may exist");
        while network.leaders() != [leader] {
            network.run(SECOND / 10);
            assert_eq!(live(&mut network, leader), 3, "seed {seed}");
            assert!(network.now - began <= 4 * SECOND, "seed {seed}");
        }
        leads_on(&mut network, leader, 30);
        assert_eq!(live(&mut network, leader), 3, "seed {seed}");
        network.nodes[0].end = None;
        network.run(16 * SECOND);
        assert_eq!(
            live(&mut network, leader),
            2,
            "the death of a node is noticed as before"
        );
    }
}

/// The only standby is dead, and one of twenty datagrams is lost.
#[test]
fn a_leader_with_one_node_leads_on_though_datagrams_are_lost() {
    for seed in 110..116 {
        let (mut network, leader, _) = settled(seed, 2, 1);
        network.coordinators[1 - leader].end = None;
        network.lost = 50;
        leads_on(&mut network, leader, 600);
    }
}

/// The leader hears only one machine, which has the node id of a dead node.
#[test]
fn a_leader_leads_on_while_it_hears_a_refused_machine() {
    for seed in 120..124 {
        let (mut network, leader, _) = settled(seed, 2, 2);
        network.coordinators[1 - leader].end = None;
        network.start_node_as(1, 1);
        network.run(SECOND * 2);
        network.nodes[0].end = None;
        leads_on(&mut network, leader, 40);
        assert!(network.nodes[1].events.contains(&NodeEvent::Reach(true)));
    }
}

/// Cloned machines have the node id of another machine, and ask the standby again and again.
#[test]
fn a_leader_that_refuses_machines_is_not_displaced() {
    for seed in 140..144 {
        let (mut network, leader, _) = settled(seed, 2, 4);
        (1..4).for_each(|at| network.start_node_as(at, 1));
        leads_on(&mut network, leader, 60);
        assert_eq!(live(&mut network, leader), 1, "seed {seed}");
    }
}

fn leads_on(network: &mut Network, leader: usize, seconds: u32) {
    for _ in 0..seconds * 10 {
        network.run(SECOND / 10);
        assert_eq!(network.leaders(), [leader], "{:?}", network.now);
    }
}

/// Each coordinator reaches only a part of the nodes, and the coordinators hear each other.
#[test]
fn a_standby_that_would_serve_no_more_nodes_does_not_take_over() {
    for (seed, nodes, badly) in [(130, 6, 3), (131, 8, 3), (132, 2, 1), (133, 3, 1)] {
        let (mut network, leader, _) = settled(seed, 2, nodes);
        for at in 0..nodes {
            let other = if at < badly { leader } else { 1 - leader };
            network.cut.insert((coordinator_at(other), node_at(at)));
        }
        leads_on(&mut network, leader, 60);
        assert_eq!(live(&mut network, leader), nodes - badly, "seed {seed}");
        if nodes - badly > badly {
            network.nodes[nodes - 1].end = None;
            leads_on(&mut network, leader, 20);
            let live = live(&mut network, leader);
            assert_eq!(live, nodes - badly - 1, "seed {seed}: a death is noticed");
        }
    }
}
