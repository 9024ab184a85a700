//! Cuts a program in two for a group of the kernel's: what decides the member, and what decides whether the packet is kept.
//!
//! A fan-out program can neither drop nor copy, and runs before each member's filter does. So the first slice may say anything about packets that the whole
//! program drops, and says about others what the whole program says; the second one drops what the whole program drops, and counts what it counts. Turns and
//! fragments are those of the first slice's packets: it sees also those that are dropped behind it.

mod fit;

use std::fmt;

use crate::ir::{Comparison, Function, Header, Predicate, Program, Property, Side, Steer};
use fanpcap_wire::number;

/// Why a group of the kernel's can't do what a program says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// What it is, and what to do.
    pub what: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Unfit {}

/// What decides the member, without filters that only drop, without counters and samples.
///
/// # Errors
/// What a group of the kernel's can't do.
pub fn steering(program: &Program) -> Result<Program, Unfit> {
    fit::check(&program.main)?;
    Ok(Program {
        main: steers(&program.main, OnDrop::EndsAll),
        ..program.clone()
    })
}

/// What decides whether a packet is kept, with counters and samples; none where all are kept and nothing is counted.
///
/// # Errors
/// As [`steering`].
pub fn verdict(program: &Program) -> Result<Option<Program>, Unfit> {
    fit::check(&program.main)?;
    let main = judges(&program.main);
    let has_effect = fit::may_drop(&main) || fit::counts(&main);
    Ok(has_effect.then(|| Program {
        main,
        ..program.clone()
    }))
}

/// What follows where a function drops.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnDrop {
    /// The packet is dropped.
    EndsAll,
    /// Another function is tried.
    IsTold,
}

fn steers(function: &Function, drop: OnDrop) -> Function {
    match function {
        Function::Count(..) | Function::Sample { .. } => Function::Pass,
        Function::Sequence(functions) => {
            let slices: Vec<Function> = functions.iter().map(|each| steers(each, drop)).collect();
            if drop == OnDrop::EndsAll && slices.contains(&Function::Drop) {
                return Function::Drop;
            }
            sequence(slices.into_iter())
        }
        Function::If(predicate, then, otherwise) => {
            match (steers(then, drop), steers(otherwise, drop)) {
                (Function::Drop, other) | (other, Function::Drop) if drop == OnDrop::EndsAll => {
                    other
                }
                (then, otherwise) => choice(predicate, then, otherwise),
            }
        }
        Function::First(alternatives) => {
            let last = alternatives.len().saturating_sub(1);
            let slices = alternatives.iter().enumerate().map(|(at, each)| {
                let told = if at == last { drop } else { OnDrop::IsTold };
                steers(each, told)
            });
            first(slices)
        }
        // It passes only with the outcome from before.
        Function::Inverse(_) if drop == OnDrop::EndsAll => Function::Pass,
        Function::Inverse(function) => Function::Inverse(Box::new(steers(function, drop))),
        Function::Inner(function) => inner(steers(function, drop)),
        Function::Pass
        | Function::Drop
        | Function::Steer(_)
        | Function::Broadcast
        | Function::Classify(_)
        | Function::Host(_)
        | Function::Mark(_)
        | Function::SetState(_) => function.clone(),
    }
}

fn judges(function: &Function) -> Function {
    match function {
        Function::Steer(steer) => has(steer),
        Function::Broadcast | Function::Classify(_) | Function::Host(_) | Function::Mark(_) => {
            Function::Pass
        }
        Function::Sequence(functions) => sequence(functions.iter().map(judges)),
        Function::If(predicate, then, otherwise) => {
            choice(predicate, judges(then), judges(otherwise))
        }
        Function::First(alternatives) => first(alternatives.iter().map(judges)),
        Function::Inverse(function) => Function::Inverse(Box::new(judges(function))),
        Function::Inner(function) => inner(judges(function)),
        Function::Pass
        | Function::Drop
        | Function::Count(..)
        | Function::SetState(_)
        | Function::Sample { .. } => function.clone(),
    }
}

/// Without what does nothing, and what is behind a drop.
fn sequence(functions: impl Iterator<Item = Function>) -> Function {
    let mut kept = Vec::new();
    for function in functions.filter(|function| *function != Function::Pass) {
        let ends = function == Function::Drop;
        kept.push(function);
        if ends {
            break;
        }
    }
    if kept.len() > 1 {
        return Function::Sequence(kept);
    }
    kept.pop().unwrap_or(Function::Pass)
}

fn choice(predicate: &Predicate, then: Function, otherwise: Function) -> Function {
    if then == otherwise {
        return then;
    }
    Function::If(
        Box::new(predicate.clone()),
        Box::new(then),
        Box::new(otherwise),
    )
}

/// Without what is behind an alternative that never drops.
fn first(alternatives: impl Iterator<Item = Function>) -> Function {
    let mut kept = Vec::new();
    for alternative in alternatives.filter(|alternative| *alternative != Function::Drop) {
        let ends = !fit::may_drop(&alternative);
        kept.push(alternative);
        if ends {
            break;
        }
    }
    if kept.len() > 1 {
        return Function::First(kept);
    }
    kept.pop().unwrap_or(Function::Drop)
}

fn inner(function: Function) -> Function {
    if matches!(function, Function::Pass | Function::Drop) {
        return function;
    }
    Function::Inner(Box::new(function))
}

/// Drops the packets that have not what they would be steered by.
fn has(steer: &Steer) -> Function {
    let udp = |port: u16| {
        let [source, destination] = [Property::UdpSource, Property::UdpDestination]
            .map(|side| Predicate::Compare(side, Comparison::Equal, port.into()));
        source.or(destination)
    };
    let needed = match steer {
        Steer::RoundRobin | Steer::Random | Steer::Cpu | Steer::Rss | Steer::To(_) => {
            return Function::Pass;
        }
        // No predicate asks for bytes, so it stays, and only its dropping counts.
        Steer::Field(_) | Steer::Fields(..) => return Function::Steer(steer.clone()),
        Steer::DoubleField(one, other) => return Function::Steer(Steer::Fields(*one, *other)),
        Steer::Flow(_) | Steer::DoubleIp => Predicate::Has(Header::Ip),
        Steer::Link | Steer::LocalLink(_) | Steer::DoubleLink => Predicate::Has(Header::Link),
        Steer::Vlan => Predicate::Has(Header::Tag),
        Steer::LocalIp(net) | Steer::LocalNet(net, _) => Predicate::Address(Side::Either, *net),
        // One part of one: whoever has all fields is in it.
        Steer::Key(key) => Predicate::Share {
            index: 0,
            of: 1,
            key: *key,
        },
        Steer::Media => {
            let udp = number::UDP.into();
            let later = Predicate::Has(Header::LaterFragment).and(Predicate::Compare(
                Property::Protocol,
                Comparison::Equal,
                udp,
            ));
            Predicate::Rtp.or(Predicate::Rtcp).or(later)
        }
        Steer::Gtp => udp(number::PORT_GTP_USER)
            .and(Predicate::Has(Header::Inner))
            .or(udp(number::PORT_GTP_CONTROL)),
    };
    Function::If(
        Box::new(needed),
        Box::new(Function::Pass),
        Box::new(Function::Drop),
    )
}

impl Predicate {
    fn and(self, other: Predicate) -> Predicate {
        Predicate::And(Box::new(self), Box::new(other))
    }

    fn or(self, other: Predicate) -> Predicate {
        Predicate::Or(Box::new(self), Box::new(other))
    }
}
