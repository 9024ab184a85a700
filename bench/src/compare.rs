//! Compares two outputs of the bench: whether each median lies in the range of the other output.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::out::tell;
use crate::spread::Spread;

/// Compares the results of two runs of the bench
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// A directory that the bench wrote to
    first: PathBuf,
    /// Another directory that the bench wrote to
    second: PathBuf,
}

/// The fields of a row's JSON that the comparison reads.
#[derive(Debug, Deserialize)]
struct Row {
    row: String,
    goals: Vec<Goal>,
    #[serde(default)]
    machine: Facts,
    #[serde(default)]
    session: Facts,
}

/// Facts by their names.
type Facts = BTreeMap<String, Value>;

#[derive(Debug, Deserialize)]
struct Goal {
    what: String,
    spread: Option<Spread>,
    #[serde(default)]
    constant: bool,
    rounds: Option<Vec<IgnoredAny>>,
}

/// Result for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Differs,
    /// An output has one round only, and so no range.
    OneRound,
    /// Only one output has the goal.
    Missing,
}

/// Prints both spreads of each goal. The exit status is 0 if each median lies in the range of the
/// other output and no goal is missing. It is 2 if the machines or the options differ, and 1 in all
/// other cases.
pub(crate) fn compare(directories: &Compare) -> Result<ExitCode> {
    let (first, second) = (rows(&directories.first)?, rows(&directories.second)?);
    let mut same = true;
    let mut unlike = BTreeSet::new();
    for row in &first {
        let other = second.iter().find(|other| other.row == row.row);
        unlike.extend(other.into_iter().flat_map(|other| differences(row, other)));
        for goal in &row.goals {
            same &= tell(
                &row.row,
                goal,
                other.and_then(|other| other.goal(&goal.what)),
            );
        }
    }
    for row in &second {
        let other = first.iter().find(|other| other.row == row.row);
        let is_known = |goal: &&Goal| other.is_some_and(|row| row.goal(&goal.what).is_some());
        for goal in row.goals.iter().filter(|goal| !is_known(goal)) {
            same &= tell(&row.row, goal, None);
        }
    }
    for line in &unlike {
        tell!("the outputs can't be compared: {line}");
    }
    Ok(match same {
        _ if !unlike.is_empty() => ExitCode::from(2),
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Facts of machine and session that must be equal in both outputs. The version of our library is
/// not one of them.
const MACHINE: [&str; 8] = [
    "cpu",
    "cpus",
    "used",
    "kernel",
    "shared",
    "driver",
    "generator",
    "libpcap",
];
const SESSION: [&str; 2] = ["milliseconds", "rounds"];

/// The differences in words. A fact that neither output has is equal.
fn differences(first: &Row, second: &Row) -> Vec<String> {
    let both = |names: &[&str], first: &Facts, second: &Facts| {
        let differs = |name: &&&str| first.get(**name) != second.get(**name);
        let text = |fact: Option<&Value>| fact.map_or("unknown".to_owned(), Value::to_string);
        let line = |name: &&str| {
            let (first, second) = (text(first.get(*name)), text(second.get(*name)));
            format!("{name}: {first} and {second}")
        };
        names.iter().filter(differs).map(line).collect::<Vec<_>>()
    };
    let mut lines = both(&MACHINE, &first.machine, &second.machine);
    lines.extend(both(&SESSION, &first.session, &second.session));
    lines
}

impl Row {
    fn goal(&self, what: &str) -> Option<&Goal> {
        self.goals.iter().find(|goal| goal.what == what)
    }
}

impl Goal {
    /// Whether there is only one round, although the goal's value may vary.
    fn is_single(&self) -> bool {
        let rounds = self.rounds.as_ref().map(Vec::len);
        !self.constant && rounds == Some(1)
    }
}

fn tell(row: &str, goal: &Goal, other: Option<&Goal>) -> bool {
    let verdict = judge(goal, other);
    let text =
        |spread: Option<Spread>| spread.map_or_else(|| "-".to_owned(), |spread| spread.text(3));
    let told = match verdict {
        Verdict::Same => "same",
        Verdict::Differs => "DIFFERS",
        Verdict::OneRound => "one round only, so no range",
        Verdict::Missing => "in one output only",
    };
    let (first, second) = (
        text(goal.spread),
        text(other.and_then(|other| other.spread)),
    );
    tell!("{row:<12} {:<40}{first:<28}{second:<28}{told}", goal.what);
    verdict == Verdict::Same
}

/// Compares a goal of both outputs. Two goals that could not be measured are equal.
fn judge(goal: &Goal, other: Option<&Goal>) -> Verdict {
    let Some(other) = other else {
        return Verdict::Missing;
    };
    let (first, second) = match (goal.spread, other.spread) {
        (Some(first), Some(second)) => (first, second),
        (None, None) => return Verdict::Same,
        (Some(_), None) | (None, Some(_)) => return Verdict::Missing,
    };
    let alike = if goal.constant && other.constant {
        first.median == second.median
    } else if goal.is_single() || other.is_single() {
        return Verdict::OneRound;
    } else {
        first.holds(second.median) && second.holds(first.median)
    };
    if alike {
        Verdict::Same
    } else {
        Verdict::Differs
    }
}

/// The rows in a directory, by name.
fn rows(directory: &Path) -> Result<Vec<Row>> {
    let entries =
        fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut rows = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            let row: Row = serde_json::from_slice(&text)
                .with_context(|| format!("{} is not an output of this bench", path.display()))?;
            rows.push(row);
        }
    }
    ensure!(!rows.is_empty(), "no results in {}", directory.display());
    rows.sort_by(|a, b| a.row.cmp(&b.row));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(spread: Option<[f64; 3]>, rounds: usize) -> Goal {
        let spread = spread.map(|[least, median, most]| Spread {
            median,
            least,
            most,
            quartiles: None,
        });
        Goal {
            what: "captured".to_owned(),
            spread,
            constant: false,
            rounds: Some(vec![IgnoredAny; rounds]),
        }
    }

    fn spread(least: f64, median: f64, most: f64) -> Goal {
        goal(Some([least, median, most]), 8)
    }

    #[test]
    fn each_median_must_lie_in_the_others_range() {
        let first = spread(0.9, 1.0, 1.1);
        assert_eq!(judge(&first, Some(&spread(0.95, 1.05, 1.2))), Verdict::Same);
        let narrow_elsewhere = spread(1.04, 1.05, 1.06);
        assert_eq!(judge(&first, Some(&narrow_elsewhere)), Verdict::Differs);
        assert_eq!(judge(&narrow_elsewhere, Some(&first)), Verdict::Differs);
    }

    #[test]
    fn what_one_lacks_is_not_the_same() {
        let (first, none) = (spread(0.9, 1.0, 1.1), goal(None, 8));
        assert_eq!(judge(&first, None), Verdict::Missing);
        assert_eq!(judge(&first, Some(&none)), Verdict::Missing);
        assert_eq!(judge(&none, Some(&first)), Verdict::Missing);
        assert_eq!(judge(&none, Some(&none)), Verdict::Same);
    }

    #[test]
    fn one_round_has_no_range_and_a_constant_needs_none() {
        let single = || goal(Some([1.0, 1.0, 1.0]), 1);
        assert_eq!(judge(&single(), Some(&single())), Verdict::OneRound);
        assert_eq!(
            judge(&spread(0.9, 1.0, 1.1), Some(&single())),
            Verdict::OneRound
        );
        let constant = |value| Goal {
            constant: true,
            ..goal(Some([value; 3]), 1)
        };
        assert_eq!(judge(&constant(1.0), Some(&constant(1.0))), Verdict::Same);
        assert_eq!(
            judge(&constant(1.0), Some(&constant(1.001))),
            Verdict::Differs
        );
    }

    #[test]
    fn what_was_measured_differently_is_told() {
        let row = |kernel: &str, milliseconds: u64, fanpcap: &str| Row {
            row: "tpacket".to_owned(),
            goals: Vec::new(),
            machine: Facts::from([
                ("kernel".to_owned(), kernel.into()),
                ("fanpcap".to_owned(), fanpcap.into()),
            ]),
            session: Facts::from([("milliseconds".to_owned(), milliseconds.into())]),
        };
        let first = row("6.18", 1000, "old");
        assert!(differences(&first, &row("6.18", 1000, "new")).is_empty());
        let told = differences(&first, &row("6.12", 300, "old"));
        assert_eq!(
            told,
            [
                "kernel: \"6.18\" and \"6.12\"",
                "milliseconds: 1000 and 300"
            ]
        );
    }
}
