//! Single faults, and the longest loss that each may cause.

use crate::proof;
use crate::run_plan::{Fault, RunPlan};
use crate::simulation::StoreSimulation;
use crate::store::Time;

const SECOND: Time = 1_000_000;

/// Runs the faults with several seeds, and checks each run.
fn each(
    nodes: usize,
    hosts: usize,
    faults: &[(Time, Fault)],
    look: impl Fn(&StoreSimulation, Time),
) {
    for seed in 1_000_000..1_000_020 {
        let plan = RunPlan::scripted(nodes, hosts, faults);
        let simulation = StoreSimulation::run(seed, &plan, false);
        let verdict = proof::judge(&simulation.judged(), &plan);
        let verdict = verdict.unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        look(&simulation, verdict.longest);
    }
}

/// How many topologies were written from `from` on.
fn written(simulation: &StoreSimulation, from: Time) -> usize {
    let history = simulation.store.history.iter();
    history.filter(|(at, ..)| *at >= from).count()
}

#[test]
fn a_dead_node_is_replaced_within_its_lease_and_a_second() {
    let lasts = 15 * SECOND;
    let fault = Fault::PowerCut { node: 1, lasts };
    each(4, 2, &[(10 * SECOND, fault)], |_, longest| {
        // When the power is cut, the node's lease of 5 s was renewed up to 0.7 s ago. After the
        // lease has ended, a message may be lost, and a load may fail once.
        assert!((4 * SECOND..8 * SECOND).contains(&longest), "{longest}");
    });
}

#[test]
fn without_a_quorum_and_after_a_mass_expiry_nothing_changes() {
    let lasts = 25 * SECOND;
    let fault = Fault::NoQuorum {
        lasts,
        revoke: true,
    };
    each(5, 3, &[(10 * SECOND, fault)], |simulation, longest| {
        assert_eq!((written(simulation, 10 * SECOND), longest), (0, 0));
    });
}

#[test]
fn without_a_coordinator_the_capture_goes_on() {
    let lasts = 25 * SECOND;
    let faults = [
        (10 * SECOND, Fault::KilledCoordinator { host: 0, lasts }),
        (10 * SECOND, Fault::KilledCoordinator { host: 1, lasts }),
        (
            12 * SECOND,
            Fault::KilledAgent {
                node: 0,
                lasts: SECOND,
            },
        ),
    ];
    each(3, 2, &faults, |simulation, longest| {
        assert_eq!((written(simulation, 10 * SECOND), longest), (0, 0));
    });
}

#[test]
fn a_successor_ends_the_union_that_its_predecessor_began() {
    let lasts = 20 * SECOND;
    let union = 10 * SECOND + SECOND / 10;
    let faults = [
        (10 * SECOND, Fault::Weigh { node: 0, weight: 3 }),
        (union, Fault::KilledCoordinator { host: 0, lasts }),
        (
            union,
            Fault::KilledCoordinator {
                host: 1,
                lasts: 2 * SECOND,
            },
        ),
    ];
    each(4, 2, &faults, |simulation, longest| {
        let last = simulation.store.history.last().expect("a topology");
        assert!(last.0 < union + 10 * SECOND, "{}", last.0);
        assert_eq!((written(simulation, 10 * SECOND), longest), (2, 0));
    });
}

#[test]
fn a_node_that_is_cut_off_loses_nothing_but_its_buckets() {
    let lasts = 20 * SECOND;
    let fault = Fault::CutOff { node: 2, lasts };
    each(4, 2, &[(10 * SECOND, fault)], |simulation, longest| {
        // The buckets move away and back: each move is a union and a stable topology.
        assert_eq!((written(simulation, 10 * SECOND), longest), (4, 0));
    });
}

#[test]
fn a_machine_that_stands_still_loses_what_came_meanwhile() {
    let lasts = 20 * SECOND;
    let fault = Fault::Standstill { node: 2, lasts };
    each(4, 2, &[(10 * SECOND, fault)], |_, longest| {
        assert!((4 * SECOND..8 * SECOND).contains(&longest), "{longest}");
    });
}
