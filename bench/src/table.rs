//! The table of a measure's runs: median, least and greatest value of each figure in each column.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::column::Column;
use crate::figure::Figure;
use crate::measure::Measure;
use crate::plot::Bar;
use crate::spread::Spread;
use crate::taking::{Round, Taken};

/// Up to this many columns are printed side by side. More columns are printed below each other.
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

    /// The table as text: a line for each figure or, if there are many columns, a line for each
    /// column.
    pub(crate) fn text(&self) -> String {
        let columns = self.columns.iter().map(|column| column.name).collect();
        let figures = self.figures.iter().map(|figure| figure.name()).collect();
        let mut text = if self.columns.len() > ABREAST {
            let cell = |line: usize, at: usize| self.cell(self.columns[line], self.figures[at]);
            self.grid((&columns, 26), (&figures, 36), cell)
        } else {
            let cell = |line: usize, at: usize| self.cell(self.columns[at], self.figures[line]);
            self.grid((&figures, NAME), (&columns, 30), cell)
        };
        // A user who names no other build of our library expects no columns of it.
        for (column, why) in self
            .absent
            .iter()
            .filter(|(column, _)| !column.is_of_other())
        {
            let _ = writeln!(text, "  {}: {why}", column.name);
        }
        text
    }

    /// A heading and lines, with the widths of names and of cells. The table's name has a line of
    /// its own if the heading has no room for it.
    fn grid(
        &self,
        (lines, name_width): (&Vec<&str>, usize),
        (heads, width): (&Vec<&str>, usize),
        cell: impl Fn(usize, usize) -> String,
    ) -> String {
        let line = |name: &str, cells: Vec<String>| {
            let cells: String = cells.iter().map(|cell| format!("{cell:<width$}")).collect();
            let line = format!("  {name:<name_width$}{cells}");
            line.trim_end().to_owned() + "\n"
        };
        let heads_line = |name: &str| line(name, heads.iter().map(|&it| it.to_owned()).collect());
        let has_line = self.columns.len() > ABREAST || self.name.len() >= NAME;
        let mut text = if has_line {
            format!("  {}\n", self.name) + &heads_line("")
        } else {
            heads_line(self.name)
        };
        for (number, name) in lines.iter().enumerate() {
            text += &line(name, (0..heads.len()).map(|at| cell(number, at)).collect());
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

    fn cell(&self, column: &Column, figure: Figure) -> String {
        let spread = self.spread(column, figure);
        spread.map_or_else(String::new, |spread| spread.text(figure.digits()))
    }
}
