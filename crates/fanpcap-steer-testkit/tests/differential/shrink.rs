//! Reduces a case while it still shows a difference.

use fanpcap_steer::ir::{Function, Predicate};

use super::case::{Case, Difference, check};
use super::seed::Seed;
use super::side::HOOKS;
use super::traffic::Shot;

/// Maximum number of trials; each takes a few milliseconds.
const TRIALS: usize = 3000;

/// The smallest case found, and its difference.
pub(crate) fn shrunk(
    case: Case,
    difference: Difference,
    cpu: u32,
    seed: &Seed<'_>,
) -> (Case, Difference) {
    // Without a listing, the difference is between both parts together and the whole program.
    let together = difference.listing.is_empty();
    let hooks = if together {
        &HOOKS[..2]
    } else {
        difference.hook.alone()
    };
    let mut best = (Case { hooks, ..case }, difference);
    let mut trials = 0;
    loop {
        let smaller = candidates(&best.0, &best.1).find_map(|candidate| {
            trials += 1;
            let found = (trials < TRIALS).then(|| check(&candidate, cpu, seed).err())??;
            (found.hook == best.1.hook).then_some((candidate, found))
        });
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

fn candidates<'c>(case: &'c Case, difference: &Difference) -> impl Iterator<Item = Case> + use<'c> {
    let count = difference.shot.map_or(case.shots.len(), |shot| shot + 1);
    let shots = fewer(&case.shots, count);
    let programs = functions(&case.program.main);
    let shorter = shorter(&case.shots);
    let with_shots = |shots| Case {
        shots,
        ..case.clone()
    };
    let with_main = |main| {
        let mut smaller = case.clone();
        smaller.program.main = main;
        smaller.source = String::new();
        smaller
    };
    shots
        .into_iter()
        .map(with_shots)
        .chain(programs.into_iter().map(with_main))
        .chain(shorter.into_iter().map(with_shots))
}

/// Without the packets after the difference, with the last alone, without a half, a quarter ... of
/// those before.
fn fewer(shots: &[Shot], count: usize) -> Vec<Vec<Shot>> {
    let mut all = Vec::new();
    if count < shots.len() {
        all.push(shots[..count].to_vec());
    }
    if count > 1 {
        all.push(shots[count - 1..count].to_vec());
    }
    let mut part = count / 2;
    while part > 0 {
        for from in (0..count).step_by(part) {
            let end = (from + part).min(count);
            if end - from < count {
                all.push([&shots[..from], &shots[end..count]].concat());
            }
        }
        part /= 2;
    }
    all
}

/// With the last packet cut, and with zeros in it.
fn shorter(shots: &[Shot]) -> Vec<Vec<Shot>> {
    let Some((last, before)) = shots.split_last() else {
        return Vec::new();
    };
    let len = last.bytes.len();
    let cuts = [len / 2, len - len.min(8), len - len.min(1)];
    let cut = cuts.into_iter().filter(|&cut| cut < len).map(|cut| Shot {
        bytes: last.bytes[..cut].to_vec(),
        ..*last
    });
    let zeroed = (0..len).filter(|&at| last.bytes[at] != 0).map(|at| {
        let mut shot = last.clone();
        shot.bytes[at] = 0;
        shot
    });
    let changed = cut.chain(zeroed);
    changed.map(|shot| [before, &[shot]].concat()).collect()
}

/// All functions that are one step simpler.
fn functions(function: &Function) -> Vec<Function> {
    let mut all = match function {
        Function::Sequence(parts) => lists(parts, Function::Sequence),
        Function::First(parts) => lists(parts, Function::First),
        Function::If(predicate, then, otherwise) => {
            let choice = |predicate: &Predicate, then: &Function, otherwise: &Function| {
                Function::If(
                    Box::new(predicate.clone()),
                    Box::new(then.clone()),
                    Box::new(otherwise.clone()),
                )
            };
            let mut all = vec![(**then).clone(), (**otherwise).clone()];
            all.extend(
                functions(then)
                    .iter()
                    .map(|then| choice(predicate, then, otherwise)),
            );
            all.extend(
                functions(otherwise)
                    .iter()
                    .map(|other| choice(predicate, then, other)),
            );
            all.extend(
                predicates(predicate)
                    .iter()
                    .map(|simple| choice(simple, then, otherwise)),
            );
            all
        }
        Function::Inverse(part) => around(part, Function::Inverse),
        Function::Inner(part) => around(part, Function::Inner),
        Function::Drop
        | Function::Steer(_)
        | Function::Broadcast
        | Function::Classify(_)
        | Function::Host(_)
        | Function::Mark(_)
        | Function::Count(..)
        | Function::SetState(_)
        | Function::Sample { .. } => Vec::new(),
        Function::Pass => return Vec::new(),
    };
    all.push(Function::Pass);
    all
}

fn around(part: &Function, make: fn(Box<Function>) -> Function) -> Vec<Function> {
    let mut all = vec![part.clone()];
    all.extend(
        functions(part)
            .into_iter()
            .map(|simple| make(Box::new(simple))),
    );
    all
}

fn lists(parts: &[Function], make: fn(Vec<Function>) -> Function) -> Vec<Function> {
    let mut all = parts.to_vec();
    for at in 0..parts.len() {
        let mut fewer = parts.to_vec();
        fewer.remove(at);
        all.push(make(fewer));
        for simple in functions(&parts[at]) {
            let mut simpler = parts.to_vec();
            simpler[at] = simple;
            all.push(make(simpler));
        }
    }
    all
}

fn predicates(predicate: &Predicate) -> Vec<Predicate> {
    let pair =
        |a: &Predicate, b: &Predicate, make: fn(Box<Predicate>, Box<Predicate>) -> Predicate| {
            let mut all = vec![a.clone(), b.clone()];
            all.extend(
                predicates(a)
                    .into_iter()
                    .map(|a| make(Box::new(a), Box::new(b.clone()))),
            );
            all.extend(
                predicates(b)
                    .into_iter()
                    .map(|b| make(Box::new(a.clone()), Box::new(b))),
            );
            all
        };
    match predicate {
        Predicate::Constant(_) => Vec::new(),
        Predicate::Not(part) => {
            let mut all = vec![(**part).clone()];
            all.extend(
                predicates(part)
                    .into_iter()
                    .map(|part| Predicate::Not(Box::new(part))),
            );
            all
        }
        Predicate::And(a, b) => pair(a, b, Predicate::And),
        Predicate::Or(a, b) => pair(a, b, Predicate::Or),
        Predicate::Xor(a, b) => pair(a, b, Predicate::Xor),
        Predicate::Compare(..)
        | Predicate::Member(..)
        | Predicate::Has(_)
        | Predicate::Address(..)
        | Predicate::AddressIn { .. }
        | Predicate::Port(..)
        | Predicate::Pcap(_)
        | Predicate::Share { .. }
        | Predicate::Rtp
        | Predicate::Rtcp => [true, false].map(Predicate::Constant).to_vec(),
    }
}
