//! What a program asks of a packet that its bytes do not tell: in a capture file and in test runs it comes out otherwise.

use std::collections::BTreeSet;

use fanpcap_steer::ir::{Function, Predicate, Program, Property, Steer};

/// In words, each once.
pub(super) fn of(program: &Program) -> Vec<String> {
    let mut found = BTreeSet::new();
    function(&program.main, &mut found);
    found.into_iter().map(str::to_owned).collect()
}

fn function(function: &Function, found: &mut BTreeSet<&'static str>) {
    match function {
        Function::Sequence(parts) | Function::First(parts) => {
            parts.iter().for_each(|part| self::function(part, found));
        }
        Function::If(question, then, otherwise) => {
            predicate(question, found);
            self::function(then, found);
            self::function(otherwise, found);
        }
        Function::Inverse(part) | Function::Inner(part) => self::function(part, found),
        Function::Steer(steer) => found.extend(of_steer(steer)),
        Function::Sample { .. } => {
            found.insert("sample: counted by each member on each CPU by itself, here on one CPU");
        }
        Function::Pass
        | Function::Drop
        | Function::Broadcast
        | Function::Classify(_)
        | Function::Host(_)
        | Function::Mark(_)
        | Function::Count(..)
        | Function::SetState(_) => {}
    }
}

fn of_steer(steer: &Steer) -> Option<&'static str> {
    match steer {
        Steer::Cpu => {
            Some("steer_cpu: the file does not tell the CPU; here all packets came on CPU 0")
        }
        Steer::Rss => Some(
            "steer_rss: the file does not tell the packets' hash; here they go as by steer_flow",
        ),
        Steer::RoundRobin => Some("steer_rrobin: counted on each CPU by itself, here on one"),
        Steer::Random => Some("steer_rnd: random, and otherwise in each run on a device"),
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

fn predicate(predicate: &Predicate, found: &mut BTreeSet<&'static str>) {
    match predicate {
        Predicate::Not(part) => self::predicate(part, found),
        Predicate::And(one, other) | Predicate::Or(one, other) | Predicate::Xor(one, other) => {
            self::predicate(one, found);
            self::predicate(other, found);
        }
        Predicate::Compare(Property::Queue, ..) | Predicate::Member(Property::Queue, _) => {
            found.insert("rx_queue: the file does not tell the queue; here no packet has one");
        }
        Predicate::Compare(Property::Mark, ..) | Predicate::Member(Property::Mark, _) => {
            found.insert("mark: the file does not tell it; here it is 0");
        }
        Predicate::Constant(_)
        | Predicate::Compare(..)
        | Predicate::Member(..)
        | Predicate::Has(_)
        | Predicate::Address(..)
        | Predicate::AddressIn { .. }
        | Predicate::Port(..)
        | Predicate::Pcap(_)
        | Predicate::Share { .. }
        | Predicate::Rtp
        | Predicate::Rtcp => {}
    }
}
