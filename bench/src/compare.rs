//! Two outputs of the bench, side by side: does each median lie in the other's range?

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Deserialize;

use crate::spread::Spread;

/// Tells whether two outputs say the same
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// A directory that the bench wrote to
    first: PathBuf,
    /// Another
    second: PathBuf,
}

/// What is needed of a row's JSON.
#[derive(Debug, Deserialize)]
struct Row {
    row: String,
    goals: Vec<Goal>,
}

#[derive(Debug, Deserialize)]
struct Goal {
    what: String,
    spread: Option<Spread>,
}

/// What became of a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Same,
    Differs,
    /// In one of the two only.
    Missing,
}

/// Prints each goal's two spreads; whether all medians lie in the other's range, and none is missing.
pub(crate) fn compare(directories: &Compare) -> Result<bool> {
    let (first, second) = (rows(&directories.first)?, rows(&directories.second)?);
    let mut same = true;
    for row in &first {
        let other = second.iter().find(|other| other.row == row.row);
        let goals = other.map_or(&[][..], |other| &other.goals);
        for goal in &row.goals {
            let other = goals.iter().find(|other| other.what == goal.what);
            same &= tell(&row.row, goal, other);
        }
    }
    for row in &second {
        let other = first.iter().find(|other| other.row == row.row);
        let known = |goal: &Goal| other.is_some_and(|row| row.has(goal));
        for goal in row.goals.iter().filter(|goal| !known(goal)) {
            same &= tell(&row.row, goal, None);
        }
    }
    Ok(same)
}

impl Row {
    fn has(&self, goal: &Goal) -> bool {
        self.goals.iter().any(|own| own.what == goal.what)
    }
}

fn tell(row: &str, goal: &Goal, other: Option<&Goal>) -> bool {
    let verdict = judge(goal.spread, other.map(|other| other.spread));
    let text = |spread: Option<Spread>| {
        spread.map_or_else(|| "-".to_owned(), |spread| crate::table::digits(spread, 3))
    };
    let told = match verdict {
        Verdict::Same => "same",
        Verdict::Differs => "DIFFERS",
        Verdict::Missing => "in one only",
    };
    let (first, second) = (
        text(goal.spread),
        text(other.and_then(|other| other.spread)),
    );
    println!("{row:<12} {:<40}{first:<28}{second:<28}{told}", goal.what);
    verdict == Verdict::Same
}

/// A goal that neither could measure is the same in both.
fn judge(first: Option<Spread>, second: Option<Option<Spread>>) -> Verdict {
    match (first, second) {
        (Some(first), Some(Some(second)))
            if first.holds(second.median) && second.holds(first.median) =>
        {
            Verdict::Same
        }
        (Some(_), Some(Some(_))) => Verdict::Differs,
        (None, Some(None)) => Verdict::Same,
        (Some(_) | None, _) => Verdict::Missing,
    }
}

/// The rows that a directory has, by name.
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
                .with_context(|| format!("{} is not of this bench", path.display()))?;
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

    fn spread(least: f64, median: f64, most: f64) -> Option<Spread> {
        Some(Spread {
            median,
            least,
            most,
        })
    }

    #[test]
    fn each_median_must_lie_in_the_others_range() {
        let first = spread(0.9, 1.0, 1.1);
        assert_eq!(judge(first, Some(spread(0.95, 1.05, 1.2))), Verdict::Same);
        let narrow_elsewhere = spread(1.04, 1.05, 1.06);
        assert_eq!(judge(first, Some(narrow_elsewhere)), Verdict::Differs);
        assert_eq!(judge(narrow_elsewhere, Some(first)), Verdict::Differs);
    }

    #[test]
    fn what_one_lacks_is_not_the_same() {
        let first = spread(0.9, 1.0, 1.1);
        assert_eq!(judge(first, None), Verdict::Missing);
        assert_eq!(judge(first, Some(None)), Verdict::Missing);
        assert_eq!(judge(None, Some(first)), Verdict::Missing);
        assert_eq!(judge(None, Some(None)), Verdict::Same);
    }
}
