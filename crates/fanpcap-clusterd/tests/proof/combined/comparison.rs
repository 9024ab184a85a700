//! Compares the account of each bucket with the truth.

use super::figures::{Bounds, CAPTURED, Counts, DOUBLES, LOST, NAMES, sum, width};
use super::question::Doubtful;
use crate::account::Line;

/// Whether `line`, the analyzer's status, has the figures `sums`.
pub(super) fn is_of(line: &Line, sums: &Bounds) -> bool {
    let mut both = NAMES.iter().zip(sums);
    both.all(|(name, bounds)| line.span(name).ok() == Some(*bounds))
}

/// Lists figures of the account that are wrong, or that are less certain than they can be.
pub(super) fn compare(rows: &[Bounds], truth: &[Counts], question: &[Doubtful]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (bucket, ((row, truth), question)) in rows.iter().zip(truth).zip(question).enumerate() {
        for (at, name) in NAMES.iter().enumerate() {
            let (bounds, truth) = (row[at], truth[at]);
            let most = match at {
                CAPTURED | DOUBLES => question.captures,
                LOST => question.packets,
                _ => 0,
            };
            let holds = (bounds.0..=bounds.1).contains(&truth);
            if !holds || width(bounds) > most {
                wrong.push(format!(
                    "bucket {bucket}, {name}: {bounds:?}, truth {truth}, {most} uncertain"
                ));
            }
        }
    }
    wrong
}

/// Prints the account's sums with the true numbers, and how uncertain the account is.
pub(super) fn report(rows: &[Bounds], truth: &[Counts], question: &[Doubtful]) {
    let sums = sum(rows);
    for (at, name) in NAMES.iter().enumerate() {
        let truth: i64 = truth.iter().map(|it| it[at]).sum();
        println!(
            "          {name} {}..{}, truth {truth}",
            sums[at].0, sums[at].1
        );
    }
    let exact = |row: &&Bounds| width(row[DOUBLES]) == 0 && width(row[LOST]) == 0;
    let exact = rows.iter().filter(exact).count();
    let sure = question.iter().filter(|it| it.packets == 0).count();
    let all: i64 = question.iter().map(|it| it.packets).sum();
    let widest = rows.iter().zip(question).map(|(row, question)| {
        let of = |at: usize, most: i64| width(row[at]) as f64 / most.max(1) as f64;
        let captures = of(CAPTURED, question.captures).max(of(DOUBLES, question.captures));
        captures.max(of(LOST, question.packets))
    });
    let widest = widest.fold(0.0, f64::max);
    println!(
        "          {all} packets in question, of {} buckets; {} spans have a width, at most {widest:.2} \
         of the packets in question",
        question.len() - sure,
        rows.len() - exact,
    );
}
