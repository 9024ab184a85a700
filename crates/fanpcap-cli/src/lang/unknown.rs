//! Finds the properties that a steering program reads but that a packet's bytes do not contain. In
//! capture files and test runs, these properties have other values than for live packets.

use std::collections::BTreeSet;

use fanpcap_steer::ir::{Function, Node, Predicate, Property, Steer, Tree};

/// A text about each of these properties. Each text occurs once.
pub(super) fn of(program: &Tree) -> Vec<String> {
    let mut found = BTreeSet::new();
    program.main.walk(&mut |node| {
        found.extend(match node {
            Node::Function(function) => of_function(function),
            Node::Predicate(predicate) => of_predicate(predicate),
        });
    });
    found.into_iter().map(str::to_owned).collect()
}

fn of_function(function: &Function) -> Option<&'static str> {
    if let Function::Steer(steer) = function {
        return of_steer(steer);
    }
    let samples = matches!(function, Function::Sample { .. });
    samples.then_some("sample: each member counts separately on each CPU, here on one CPU")
}

fn of_steer(steer: &Steer) -> Option<&'static str> {
    match steer {
        Steer::Cpu => {
            Some("steer_cpu: the file does not contain the CPU; here all packets came on CPU 0")
        }
        Steer::Rss => Some(
            "steer_rss: the file does not contain the hash of the device; here packets are steered as by steer_flow",
        ),
        Steer::RoundRobin => Some("steer_rrobin: each CPU counts separately, here one CPU"),
        Steer::Random => Some("steer_rnd: random, and different in each run on a device"),
        Steer::Flow(_)
        | Steer::Link
        | Steer::Vlan
        | Steer::To(_)
        | Steer::Field(_)
        | Steer::Fields(..)
        | Steer::LocalIp(_)
        | Steer::LocalNet(..)
        | Steer::LocalLink(_)
        | Steer::Key(_)
        | Steer::DoubleLink
        | Steer::DoubleIp
        | Steer::DoubleField(..)
        | Steer::Media
        | Steer::Gtp => None,
    }
}

fn of_predicate(predicate: &Predicate) -> Option<&'static str> {
    let (Predicate::Compare(property, ..) | Predicate::Member(property, _)) = predicate else {
        return None;
    };
    if *property == Property::Queue {
        return Some("rx_queue: the file does not contain the queue; here no packet has a queue");
    }
    (*property == Property::Mark).then_some("mark: not in the file; here the mark is 0")
}
