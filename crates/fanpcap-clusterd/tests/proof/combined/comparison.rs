//! Compares the account of each bucket with the truth.

use super::figures::{Bounds, Counts, DOUBLES, LOST, NAMES, sum, width};
use crate::account::Line;

/// Whether `line`, the analyzer's status, has the figures `sums`.
pub(super) fn is_of(line: &Line, sums: &Bounds) -> bool {
    let mut both = NAMES.iter().zip(sums);
    both.all(|(name, bounds)| line.span(name).ok() == Some(*bounds))
}

/// Lists figures of the account that are wrong, or that are less certain than they can be.
pub(super) fn compare(rows: &[Bounds], truth: &[Counts], question: &[i64]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (bucket, ((row, truth), question)) in rows.iter().zip(truth).zip(question).enumerate() {
        for (at, name) in NAMES.iter().enumerate() {
            let (bounds, truth) = (row[at], truth[at]);
            let most = if at == 0 { 0 } else { *question };
            let holds = (bounds.0..=bounds.1).contains(&truth);
            if !holds || width(bounds) > most {
                wrong.push(format!(
                    "bucket {bucket}, {name}: {bounds:?}, truth {truth}, {question} uncertain"
                ));
            }
        }
    }
    wrong
}

/// Prints the account's sums with the true numbers, and how uncertain the account is.
pub(super) fn report(rows: &[Bounds], truth: &[Counts], question: &[i64]) {
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
    let sure = question.iter().filter(|it| **it == 0).count();
    let all: i64 = question.iter().sum();
    let widest = rows.iter().zip(question).map(|(row, question)| {
        let width = width(row[DOUBLES]).max(width(row[LOST]));
        width as f64 / (*question).max(1) as f64
    });
    let widest = widest.fold(0.0, f64::max);
    println!(
        "          {all} packets in question, of {} buckets; {} spans have a width, at most {widest:.2} \
         of the packets in question",
        question.len() - sure,
        rows.len() - exact,
    );
}
