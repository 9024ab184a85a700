//! How the proof of the simulated clusters judges a change that has no union.

use std::rc::Rc;

use fanpcap_buckets::{Slot, layout::BUCKETS};
use fanpcap_cluster::node::Assignment;
use fanpcap_cluster::{NodeEntry, NodeId, Revision, Topology};
use fanpcap_select::{Claims, Selection};

use super::lineage::{self, Written};
use super::{Broken, End, Run, SKEW, Verdict};
use crate::machines::{Machine, Segment};
use crate::run_plan::RunPlan;
use crate::store::Time;

const SECOND: Time = 1_000_000;

/// A topology in which `owner` has all buckets.
fn written(revision: u64, replaces: Option<u64>, owner: u32) -> Written {
    let entry = NodeEntry {
        slot: Slot(0),
        node: NodeId(owner),
        weight: 1,
    };
    let topology = Topology {
        epoch: revision,
        selection: Selection::default(),
        nodes: vec![entry],
        owners: Box::new([Some(entry.slot); BUCKETS]),
        new_owners: None,
        analyzers: Vec::new(),
        filter: None,
    };
    Written {
        revision: Revision(revision),
        replaces: replaces.map(Revision),
        topology: Box::new(topology),
    }
}

fn load(machine: &mut Machine, from: Time, of: &Written) {
    let topology = &of.topology;
    let slot = topology.entry(machine.id).map(|entry| entry.slot);
    let assignment = Assignment {
        revision: of.revision,
        epoch: topology.epoch,
        slot,
        selection: topology.selection,
        claims: slot.map_or_else(Claims::none, |slot| topology.claims(slot)),
        target: None,
        analyzers: Vec::new(),
        filter: None,
    };
    let assignment = Some(Rc::new(assignment));
    let boot = machine.boot;
    machine.segments.push(Segment {
        from,
        boot,
        assignment,
    });
}

/// Judges a run with two nodes. At first, node 1 has all buckets. At its time in `times`, each node
/// loads a topology in which node 2 has all buckets.
fn judged(replaces: Option<u64>, times: [Time; 2]) -> Result<Verdict, Broken> {
    let written = [written(1, None, 1), written(2, replaces, 2)];
    let mut machines = [Machine::new(1), Machine::new(2)];
    for (machine, at) in machines.iter_mut().zip(times) {
        load(machine, SECOND, &written[0]);
        load(machine, at, &written[1]);
    }
    let run = Run {
        machines: &machines,
        topologies: written.iter().map(|one| &*one.topology).collect(),
        eras: lineage::eras(&machines, &written)?,
        stale: vec![Vec::new(); 2],
        end: End::Stands(Some(&written[1].topology)),
    };
    super::judge(&run, &RunPlan::scripted(2, 1, &[]))
}

#[test]
fn what_a_change_of_branch_costs_is_counted_though_all_change_at_once() {
    let at = 10 * SECOND;
    for (times, costs) in [([at, at], SKEW), ([at, at + SECOND], SKEW + SECOND)] {
        let verdict = judged(None, times).expect("no union leads there");
        assert_eq!((verdict.forked, verdict.stale), (costs, 0));
    }
}

#[test]
fn a_change_without_a_union_breaks_the_promise_within_a_branch() {
    let at = 10 * SECOND;
    for times in [[at, at], [at, at + SECOND]] {
        let missed = judged(Some(1), times).err();
        let missed = missed.is_some_and(|broken| matches!(broken, Broken::Missed { .. }));
        assert!(missed, "the owner works");
    }
}
