//! The table of a measure's runs: median, least and greatest value of each figure in each column.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::column::Column;
use crate::figure::Figure;
use crate::measure::Measure;
use crate::plot::Bar;
use crate::spread::Spread;
use crate::taking::{Round, Taken};

/// Up to this many columns stand side by side, more below each other.
const ABREAST: usize = 3;

/// Width of the first column.
const NAME: usize = 40;

/// A measure, ready for printing.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    columns: Vec<&'static Column>,
    figures: Vec<Figure>,
    rounds: Vec<Round>,
    absent: Vec<(&'static Column, String)>,
}

impl Table {
    /// The table of a measure's rounds.
    pub(crate) fn new(measure: Measure, taken: &Taken) -> Self {
        let is_absent = |key| taken.absent.iter().any(|(absent, _)| absent.key == key);
        let columns = measure.columns().iter();
        let columns: Vec<_> = columns.filter(|c| !is_absent(c.key)).collect();
        let told = |column: &&Column| {
            let samples = taken
                .rounds
                .iter()
                .filter_map(|round| round.sample(column.key));
            samples.flat_map(|sample| sample.keys().copied())
        };
        let told: BTreeSet<Figure> = columns.iter().flat_map(told).collect();
        let figures = match measure.shown() {
            [] => told.into_iter().collect(),
            shown => shown.to_vec(),
        };
        Self {
            name: measure.name(),
            columns,
            figures,
            rounds: taken.rounds.clone(),
            absent: taken.absent.clone(),
        }
    }

    /// The table as text.
    pub(crate) fn text(&self) -> String {
        let mut text = if self.columns.len() > ABREAST {
            self.below_each_other()
        } else {
            self.side_by_side()
        };
        for (column, why) in &self.absent {
            let _ = writeln!(text, "  {}: {why}", column.name);
        }
        text
    }

    /// The bars of a figure, one for each column.
    pub(crate) fn bars(&self, figure: Figure) -> Vec<Bar> {
        let bar = |column: &&'static Column| {
            Some(Bar {
                name: column.name,
                spread: self.spread(column, figure)?,
            })
        };
        self.columns.iter().filter_map(bar).collect()
    }

    fn spread(&self, column: &Column, figure: Figure) -> Option<Spread> {
        let rounds = self.rounds.iter();
        Spread::of(rounds.filter_map(|round| round.value(column.key, figure)))
    }

    fn side_by_side(&self) -> String {
        let line = |name: &str, cells: Vec<String>| line(name, NAME, &cells, 30);
        let names = self.columns.iter().map(|column| column.name.to_owned());
        let heading = if self.name.len() < NAME {
            line(self.name, names.collect())
        } else {
            format!("  {}\n", self.name) + &line("", names.collect())
        };
        let lines = self.figures.iter().map(|figure| {
            let cells = self.columns.iter().map(|column| self.cell(column, *figure));
            line(figure.name(), cells.collect())
        });
        heading + &lines.collect::<String>()
    }

    fn below_each_other(&self) -> String {
        let line = |name: &str, cells: Vec<String>| line(name, 26, &cells, 36);
        let names = self.figures.iter().map(|figure| figure.name().to_owned());
        let heading = format!("  {}\n", self.name) + &line("", names.collect());
        let lines = self.columns.iter().map(|column| {
            let cells = self.figures.iter().map(|figure| self.cell(column, *figure));
            line(column.name, cells.collect())
        });
        heading + &lines.collect::<String>()
    }

    fn cell(&self, column: &Column, figure: Figure) -> String {
        let Some(spread) = self.spread(column, figure) else {
            return String::new();
        };
        let [median, least, most] =
            [spread.median, spread.least, spread.most].map(|value| figure.format(value));
        format!("{median} ({least}-{most})")
    }
}

/// A line of cells, with the widths of its name and of each cell.
fn line(name: &str, name_width: usize, cells: &[String], width: usize) -> String {
    let cells: String = cells.iter().map(|cell| format!("{cell:<width$}")).collect();
    format!("  {name:<name_width$}{cells}")
        .trim_end()
        .to_owned()
        + "\n"
}

/// A spread with this number of decimals.
pub(crate) fn digits(spread: Spread, digits: usize) -> String {
    let Spread {
        median,
        least,
        most,
    } = spread;
    format!("{median:.digits$} ({least:.digits$}-{most:.digits$})")
}
