//! Reduces a case while it still shows a difference.

use fanpcap_steer::ir::{Function, Predicate};

use super::case::{Case, Difference, check};
use super::seed::Seed;
use super::side::HOOKS;
use super::traffic::Shot;

/// Maximum number of trials; each takes a few milliseconds.
const TRIALS: usize = 3000;

/// Returns the smallest case that the function has found, and this case's difference.
pub(crate) fn shrunk(
    case: Case,
    difference: Difference,
    cpu: u32,
    seed: &Seed<'_>,
) -> (Case, Difference) {
    // If the difference has no listing, it is a difference between the two parts together and the
    // whole program. So both hooks of the parts are needed.
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

/// Shorter lists of packets: without the packets after the difference, with only the last packet,
/// or without a half, a quarter and so on of the packets before the difference.
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

/// The packets with the last one cut, or with one of its bytes set to zero.
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

/// All functions that are simpler than this function by one step.
fn functions(function: &Function) -> Vec<Function> {
    let mut all: Vec<_> = function.children().cloned().collect();
    for (at, child) in function.children().enumerate() {
        let mut fewer = function.clone();
        if let Function::Sequence(parts) | Function::First(parts) = &mut fewer {
            parts.remove(at);
            all.push(fewer);
        }
        for simple in functions(child) {
            let mut simpler = function.clone();
            *simpler.children_mut().nth(at).unwrap() = simple;
            all.push(simpler);
        }
    }
    for simple in function.question().into_iter().flat_map(predicates) {
        let mut simpler = function.clone();
        if let Function::If(question, ..) = &mut simpler {
            **question = simple;
        }
        all.push(simpler);
    }
    if *function != Function::Pass {
        all.push(Function::Pass);
    }
    all
}

fn predicates(predicate: &Predicate) -> Vec<Predicate> {
    let mut all: Vec<_> = predicate.children().cloned().collect();
    for (at, child) in predicate.children().enumerate() {
        for simple in predicates(child) {
            let mut simpler = predicate.clone();
            *simpler.children_mut().nth(at).unwrap() = simple;
            all.push(simpler);
        }
    }
    let is_leaf = all.is_empty();
    if is_leaf && !matches!(predicate, Predicate::Constant(_)) {
        all.extend([true, false].map(Predicate::Constant));
    }
    all
}
