//! Each rule of the coordinator, on an engine in memory.

use super::*;
use crate::coordination::Announcement;
use crate::topology::Phase;
use std::net::{Ipv4Addr, SocketAddr};

mod filter;

/// An engine in memory with a coordinator, and a simulated clock.
struct TestCluster {
    view: View,
    coordinator: Coordinator,
    now: Duration,
    changes: Vec<Change>,
    notes: Vec<Condition>,
}

impl TestCluster {
    fn new() -> Self {
        Self {
            view: View {
                leads: true,
                ..View::default()
            },
            coordinator: Coordinator::new(Timing::default()),
            now: Duration::from_secs(10_000),
            changes: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// A cluster that has these nodes, and is stable.
    fn with(nodes: &[u32]) -> Self {
        let mut lab = Self::new();
        for &node in nodes {
            lab.join(node);
        }
        lab.run(1200);
        assert_eq!(lab.topology().nodes.len(), nodes.len());
        lab.changes.clear();
        lab.notes.clear();
        lab
    }

    fn join(&mut self, node: u32) {
        self.view.live.push(LiveNode {
            announcement: Announcement {
                node: NodeId(node),
                boot: 1,
                weight: 1,
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, 9)),
                setup: None,
            },
            acknowledged: None,
        });
    }

    fn lose(&mut self, node: u32) {
        self.view
            .live
            .retain(|live| live.announcement.node != NodeId(node));
    }

    fn node(&mut self, node: u32) -> &mut LiveNode {
        let mut live = self.view.live.iter_mut();
        live.find(|live| live.announcement.node == NodeId(node))
            .expect("a live node")
    }

    /// Lets all live nodes except `late` acknowledge the present topology.
    fn acknowledge_but(&mut self, late: &[u32]) {
        let revision = self.view.topology.as_ref().map(|(revision, _)| *revision);
        for live in &mut self.view.live {
            if !late.contains(&live.announcement.node.0) {
                live.acknowledged = revision;
            }
        }
    }

    fn step(&mut self) -> bool {
        let step = self.coordinator.step(&self.view, self.now);
        self.notes.extend(step.notes);
        let Some(write) = step.write else {
            return false;
        };
        let present = self.view.topology.as_ref().map(|(revision, _)| *revision);
        assert_eq!(write.replaces, present);
        assert_eq!(write.topology.check(), Ok(()));
        let revision = Revision(present.unwrap_or_default().0 + 3);
        self.view.topology = Some((revision, write.topology));
        self.changes.push(write.change);
        true
    }

    /// Runs for `millis` milliseconds. All nodes except `late` acknowledge at once.
    fn run_but(&mut self, millis: u64, late: &[u32]) {
        for _ in 0..millis / 50 {
            self.step();
            self.acknowledge_but(late);
            self.now += Duration::from_millis(50);
        }
    }

    fn run(&mut self, millis: u64) {
        self.run_but(millis, &[]);
    }

    fn topology(&self) -> &Topology {
        &self.view.topology.as_ref().expect("a topology").1
    }

    fn stages(&self) -> Vec<Stage> {
        self.changes.iter().map(|change| change.stage).collect()
    }

    /// How many buckets the node has after the present change.
    fn share(&self, node: u32) -> usize {
        let topology = self.topology();
        let slot = topology.entry(NodeId(node)).map(|entry| entry.slot);
        let table = topology.new_owners.as_ref().unwrap_or(&topology.owners);
        table
            .iter()
            .filter(|owner| slot.is_some() && **owner == slot)
            .count()
    }
}

#[test]
fn the_first_topology_has_all_that_come_within_the_hold_down() {
    let mut lab = TestCluster::new();
    lab.run(2000);
    assert_eq!(
        (lab.changes.len(), lab.notes.clone()),
        (0, vec![Condition::Leads, Condition::Nobody])
    );
    lab.join(5);
    lab.run(900);
    lab.join(6);
    assert_eq!(lab.changes.len(), 0);
    lab.run(200);
    assert_eq!(lab.stages(), [Stage::First]);
    assert_eq!(lab.share(5), 4096);
    lab.run(2000);
    assert_eq!(lab.stages(), [Stage::First, Stage::Union, Stage::Stable]);
    assert_eq!([lab.share(5), lab.share(6)], [2048, 2048]);
    assert_eq!(lab.changes[1].joined, [NodeId(6)]);
    assert_eq!(
        lab.changes[1].to_string(),
        "epoch=2 phase=union cause=join moved=2048/4096 joined=00000006"
    );
}

#[test]
fn a_union_ends_after_all_gainers_and_the_dwell() {
    let mut lab = TestCluster::with(&[1, 2]);
    lab.join(3);
    lab.run_but(4000, &[3]);
    assert_eq!(lab.stages(), [Stage::Union]);
    let waiting = Condition::Waiting(vec![NodeId(3)]);
    assert!(!lab.notes.contains(&waiting));
    lab.run_but(4000, &[3]);
    assert_eq!(lab.notes.iter().filter(|note| **note == waiting).count(), 1);
    lab.run(250);
    assert_eq!(lab.stages(), [Stage::Union]);
    lab.run(100);
    assert_eq!(lab.stages(), [Stage::Union, Stage::Stable]);
}

#[test]
fn a_gainer_that_boots_again_begins_its_dwell_anew() {
    let mut lab = TestCluster::with(&[1, 2]);
    lab.join(3);
    lab.run(1250);
    assert_eq!(lab.stages(), [Stage::Union]);
    lab.node(3).announcement.boot = 2;
    lab.run(250);
    assert_eq!(lab.stages(), [Stage::Union]);
    lab.run(100);
    assert_eq!(lab.stages(), [Stage::Union, Stage::Stable]);
}

#[test]
fn a_dead_nodes_buckets_go_to_the_others_at_once() {
    let mut lab = TestCluster::with(&[1, 2, 3]);
    let before = lab.topology().owners.clone();
    lab.lose(2);
    lab.run(200);
    assert_eq!(lab.stages(), [Stage::Union]);
    assert_eq!(lab.changes[0].lost, [NodeId(2)]);
    assert_eq!(lab.changes[0].moving, 1365);
    assert_eq!(lab.topology().owners, before);
    lab.run(400);
    assert_eq!(lab.stages(), [Stage::Union, Stage::Stable]);
    assert_eq!([lab.share(1), lab.share(3)], [2048, 2048]);
    assert_eq!(lab.topology().entry(NodeId(2)), None);
}

#[test]
fn a_death_in_a_union_gives_it_another_goal() {
    let mut lab = TestCluster::with(&[1, 2, 3, 4]);
    lab.join(5);
    lab.run_but(1500, &[5]);
    assert_eq!(lab.stages(), [Stage::Union]);
    let owners = lab.topology().owners.clone();
    lab.lose(5);
    lab.run(200);
    // Node 5, the new owner, has captured nothing yet. So the topology gets the old owners again,
    // without another union.
    assert_eq!(lab.stages(), [Stage::Union, Stage::Stable]);
    assert_eq!(lab.topology().owners, owners);
    // Time passes, so that the coordinator does not take this death and the next one for one event.
    lab.run(5000);
    lab.view.desired.weights.insert(NodeId(1), 3);
    lab.run_but(300, &[1]);
    lab.lose(2);
    lab.run_but(300, &[1]);
    assert_eq!(lab.stages()[2..], [Stage::Union, Stage::Union]);
    assert_eq!(lab.topology().owners, owners);
    lab.run(400);
    assert_eq!(lab.topology().phase(), Phase::Stable);
    assert_eq!([lab.share(1), lab.share(2)], [2458, 0]);
}

#[test]
fn a_new_owner_that_has_just_acknowledged_replaces_no_dead_owner_yet() {
    let mut lab = TestCluster::with(&[1, 2, 3, 4]);
    lab.view.desired.weights = [(NodeId(1), 3), (NodeId(3), 3)].into();
    lab.run_but(100, &[1, 3]);
    lab.lose(2);
    // Node 1 acknowledges in the first step of 50 ms. Node 2 counts as dead one step later.
    lab.run_but(250, &[3]);
    assert_eq!(lab.stages(), [Stage::Union]);
    lab.run_but(150, &[3]);
    assert_eq!(lab.stages(), [Stage::Union, Stage::Union]);
    assert_eq!(lab.changes[1].lost, [NodeId(2)]);
}

#[test]
fn when_many_go_at_once_nothing_changes() {
    let mut lab = TestCluster::with(&[1, 2, 3, 4, 5]);
    let nodes = lab.view.live.clone();
    for gone in [2, 3] {
        lab.lose(gone);
    }
    lab.run(60_000);
    assert_eq!(lab.stages(), []);
    let note = Condition::MassExpiry {
        nodes: vec![NodeId(2), NodeId(3)],
        limit: Some(Duration::from_secs(300)),
    };
    assert_eq!(lab.notes, [note]);
    lab.view.live = nodes;
    lab.run(10_000);
    assert_eq!(lab.stages(), []);
    lab.lose(4);
    lab.run(1000);
    assert_eq!(lab.stages(), [Stage::Union, Stage::Stable]);
}

#[test]
fn nodes_that_stay_away_are_dead_in_the_end_if_half_are_heard() {
    let mut lab = TestCluster::with(&[1, 2, 3, 4, 5]);
    lab.lose(2);
    lab.run(100_000);
    lab.changes.clear();
    lab.join(2);
    lab.run(20_000);
    lab.changes.clear();
    lab.lose(2);
    lab.lose(3);
    lab.run(299_000);
    assert_eq!(lab.stages(), []);
    lab.run(2000);
    assert_eq!(lab.stages(), [Stage::Union, Stage::Stable]);
    assert_eq!(lab.changes[0].lost, [NodeId(2), NodeId(3)]);
    // Nodes 2 and 3 were replaced. So they no longer count as absent when node 4 dies.
    lab.lose(4);
    lab.run(2000);
    assert_eq!(lab.stages().len(), 4);
    assert_eq!([lab.share(1), lab.share(5)], [2048, 2048]);
    lab.lose(5);
    lab.run(400_000);
    assert_eq!(
        lab.stages().len(),
        4,
        "more than half are gone: the operator decides"
    );
    let text = lab.notes.last().expect("a note").to_string();
    assert!(text.contains("'fanpcap cluster drain NODE'"), "{text}");
    lab.view.desired.drained.insert(NodeId(5));
    lab.run(2000);
    assert_eq!(lab.share(1), 4096);
}

#[test]
fn nodes_that_go_one_after_the_other_count_together() {
    let mut lab = TestCluster::with(&[1, 2, 3]);
    lab.lose(1);
    lab.run(2000);
    assert_eq!(lab.changes[0].lost, [NodeId(1)]);
    lab.lose(2);
    lab.run(60_000);
    assert_eq!(lab.stages(), [Stage::Union, Stage::Stable]);
    lab.join(1);
    lab.run(10_000);
    // Only node 2 is still absent. The absence of one node is no mass absence, so node 2 counts as
    // dead.
    assert_eq!([lab.share(1), lab.share(2), lab.share(3)], [2048, 0, 2048]);
}

#[test]
fn what_is_drained_is_no_part_of_a_mass() {
    let mut lab = TestCluster::with(&[1, 2, 3]);
    lab.lose(1);
    lab.lose(2);
    lab.run(10_000);
    assert_eq!(lab.stages(), []);
    lab.view.desired.drained.insert(NodeId(1));
    lab.run(10_000);
    assert_eq!([lab.share(1), lab.share(2), lab.share(3)], [0, 0, 4096]);
}

#[test]
fn without_anybody_nothing_changes() {
    let mut lab = TestCluster::with(&[1]);
    lab.lose(1);
    lab.run(10_000);
    assert_eq!(
        (lab.stages(), lab.notes.clone()),
        (vec![], vec![Condition::Nobody])
    );
    lab.join(1);
    lab.view.desired.drained.insert(NodeId(1));
    lab.run(10_000);
    assert_eq!(lab.stages(), []);
}

#[test]
fn a_drained_node_gives_all_and_comes_back_without_a_hold_down() {
    let mut lab = TestCluster::with(&[1, 2, 3]);
    lab.view.desired.drained.insert(NodeId(2));
    lab.run(500);
    assert_eq!(lab.stages(), [Stage::Union, Stage::Stable]);
    assert_eq!(lab.share(2), 0);
    assert_eq!(lab.changes[0].weighed, [(NodeId(2), 0)]);
    lab.view.desired.drained.clear();
    lab.run(100);
    assert_eq!(lab.share(2), 1365);
}

#[test]
fn a_new_leader_goes_on_with_the_union_and_believes_no_absence_at_first() {
    let mut lab = TestCluster::with(&[1, 2, 3]);
    lab.join(4);
    lab.run_but(1500, &[4]);
    assert_eq!(lab.stages(), [Stage::Union]);
    lab.coordinator = Coordinator::new(Timing::default());
    lab.run(500);
    assert_eq!(lab.stages(), [Stage::Union, Stage::Stable]);
    lab.coordinator = Coordinator::new(Timing::default());
    lab.lose(1);
    lab.run(4500);
    assert_eq!(lab.changes.len(), 2);
    lab.run(1000);
    assert_eq!(lab.changes.len(), 4);
    lab.view.leads = false;
    lab.lose(2);
    lab.run(10_000);
    assert_eq!(lab.changes.len(), 4);
    assert_eq!(lab.coordinator.conditions().count(), 0);
}

#[test]
fn who_comes_and_goes_waits_longer_each_time() {
    let mut lab = TestCluster::with(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let mut waits = Vec::new();
    for _ in 0..5 {
        lab.lose(8);
        lab.run(6000);
        assert_eq!(lab.share(8), 0);
        lab.join(8);
        let began = lab.now;
        while lab.share(8) == 0 {
            lab.run(100);
        }
        waits.push((lab.now - began).as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16]);
    lab.run(70_000);
    lab.lose(8);
    lab.run(6000);
    lab.join(8);
    lab.run(1200);
    assert_ne!(lab.share(8), 0);
}

#[test]
fn a_clock_that_jumps_ends_no_dwell() {
    let mut lab = TestCluster::with(&[1, 2]);
    lab.join(3);
    lab.run_but(1500, &[3]);
    lab.acknowledge_but(&[]);
    assert!(!lab.step());
    lab.now += Duration::from_secs(3600);
    assert!(!lab.step());
    lab.now -= Duration::from_secs(7200);
    assert!(!lab.step());
    lab.now += Duration::from_millis(60);
    assert!(lab.step());
    assert_eq!(lab.stages(), [Stage::Union, Stage::Stable]);
}

#[test]
fn a_topology_that_is_no_good_is_not_written_over() {
    let mut lab = TestCluster::with(&[1, 2]);
    if let Some((revision, topology)) = &mut lab.view.topology {
        revision.0 += 1;
        topology.nodes.clear();
    }
    lab.run(10_000);
    assert_eq!(
        lab.notes,
        [Condition::BadTopology(crate::TopologyError::Nodes)]
    );
    assert_eq!(lab.stages(), []);
}

/// A node captures by a newer topology than the coordinator's, but no process has the newer
/// topology any more.
#[test]
fn a_topology_that_nodes_have_left_for_a_lost_one_is_written_again() {
    let mut lab = TestCluster::with(&[1, 2]);
    let before = lab.topology().clone();
    // Both nodes are drained, so no node may get buckets. Nevertheless the topology is written
    // again.
    lab.view.desired.drained = [NodeId(1), NodeId(2)].into();
    lab.run(100);
    assert_eq!(lab.stages(), []);
    lab.view.is_outrun = true;
    assert!(lab.step());
    lab.view.is_outrun = false;
    lab.run(10_000);
    assert_eq!(lab.stages(), [Stage::Stable]);
    let again = Topology {
        epoch: before.epoch + 1,
        ..before
    };
    assert_eq!(*lab.topology(), again);
    assert_eq!(
        lab.changes[0].to_string(),
        "epoch=2 phase=stable cause=again moved=0/4096"
    );
}

#[test]
fn the_cluster_is_full_with_128_nodes() {
    let nodes: Vec<u32> = (1..=128).collect();
    let mut lab = TestCluster::with(&nodes);
    lab.join(129);
    lab.run(3000);
    assert_eq!(lab.stages(), []);
    assert_eq!(
        lab.notes,
        [Condition::HeldDown(NodeId(129)), Condition::Full(1)]
    );
}
