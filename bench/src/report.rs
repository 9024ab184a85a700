//! What was measured: a table for people, JSON for machines.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::figure::Figure;
use crate::machine::Machine;
use crate::pairs::{Pair, Spread};
use crate::reader::Side;
use crate::row::{Compared, Goal, Must, Row};

/// A row as it came out.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    row: &'static str,
    what: &'static str,
    machine: &'a Machine,
    /// One line of the table for each.
    goals: Vec<Outcome>,
}

/// A goal as it came out.
#[derive(Debug, Serialize)]
struct Outcome {
    what: &'static str,
    measure: String,
    figure: Figure,
    compared: Compared,
    spread: Spread,
    must: Must,
    passed: bool,
    /// The runs that it comes from.
    pairs: Vec<Pair>,
}

impl<'a> Report<'a> {
    /// Judges a row by the pairs of each of its goals.
    pub(crate) fn new(row: &Row, machine: &'a Machine, taken: &[Vec<Pair>]) -> Result<Self> {
        let goals = row
            .goals
            .iter()
            .zip(taken)
            .map(|(goal, pairs)| Outcome::new(goal, pairs))
            .collect::<Result<_>>()?;
        Ok(Self {
            row: row.name,
            what: row.what,
            machine,
            goals,
        })
    }

    /// How many goals were missed.
    pub(crate) fn missed(&self) -> usize {
        self.goals.iter().filter(|goal| !goal.passed).count()
    }

    /// For people. What two goals have in common is shown once.
    pub(crate) fn print(&self) {
        println!("{}: {}", self.row, self.what);
        let mut shown: Vec<String> = Vec::new();
        for goal in &self.goals {
            let table = goal.table();
            if !shown.contains(&table) {
                print!("{table}");
                shown.push(table);
            }
        }
        for goal in &self.goals {
            println!("  {}", goal.line());
        }
        println!();
    }

    /// For machines: `NAME.json` in a directory.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(self.row).with_extension("json");
        let write = || -> Result<()> {
            fs::create_dir_all(directory)?;
            Ok(serde_json::to_writer_pretty(File::create(&path)?, self)?)
        };
        write().with_context(|| format!("writing {}", path.display()))
    }
}

impl Outcome {
    fn new(goal: &Goal, pairs: &[Pair]) -> Result<Self> {
        let spread = goal
            .spread(pairs)
            .with_context(|| format!("no run tells {}", goal.figure.name()))?;
        Ok(Self {
            what: goal.what,
            measure: goal.measure.name(),
            figure: goal.figure,
            compared: goal.compared,
            spread,
            must: goal.must,
            passed: goal.must.holds(spread),
            pairs: pairs.to_vec(),
        })
    }

    fn line(&self) -> String {
        let Spread {
            median,
            least,
            most,
        } = self.spread;
        let verdict = if self.passed { "PASS" } else { "SHORT" };
        let value = match self.compared {
            Compared::Ratio | Compared::Alone => format!("{median:.3} ({least:.3}-{most:.3})"),
            Compared::Difference => format!("{median:.0} ({least:.0} to {most:.0})"),
        };
        let must = self.must.text();
        format!("{:<40}{value:<24}must be {must:<22}{verdict}", self.what)
    }

    /// Each figure of both sides: median, least and most of the runs.
    fn table(&self) -> String {
        let figures = self.pairs.iter().flat_map(|pair| pair.system.keys());
        let figures: BTreeSet<Figure> = figures.copied().collect();
        if figures.is_empty() {
            return String::new();
        }
        let line = |name: &str, cells: [String; 2]| {
            let [ours, system] = cells;
            format!("  {name:<40}{ours:<30}{system}\n")
        };
        let sides = [Side::Ours, Side::System];
        let heading = line(&self.measure, sides.map(|side| side.name().to_owned()));
        let lines = figures.into_iter().map(|figure| {
            let cells = sides.map(|side| cell(&self.pairs, side, figure));
            line(figure.name(), cells)
        });
        heading + &lines.collect::<String>()
    }
}

fn cell(pairs: &[Pair], side: Side, figure: Figure) -> String {
    let Some(spread) = Spread::of_side(pairs, side, figure) else {
        return String::new();
    };
    let [median, least, most] =
        [spread.median, spread.least, spread.most].map(|value| figure.format(value));
    format!("{median} ({least}-{most})")
}
