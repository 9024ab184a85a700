//! Results: as a table, as JSON, and as a plot.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::figure::Figure;
use crate::machine::{Machine, Session};
use crate::out::tell;
use crate::plot;
use crate::row::{Compared, Goal, Must, Row};
use crate::spread::Spread;
use crate::table::Table;
use crate::taking::{Round, Taken};

/// A row's result.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    row: &'static str,
    what: &'static str,
    machine: &'a Machine,
    session: &'a Session,
    /// The results of the goals. Each result is a line of the table.
    goals: Vec<Outcome>,
    published: &'static [&'static str],
    #[serde(skip)]
    tables: Vec<Table>,
}

/// A goal's result.
#[derive(Debug, Serialize)]
struct Outcome {
    what: &'static str,
    measure: &'static str,
    figure: Figure,
    compared: Compared,
    of: &'static str,
    to: &'static str,
    over: Option<&'static str>,
    /// `None` if a column could not be measured here.
    spread: Option<Spread>,
    must: Must,
    aim: Option<f64>,
    #[serde(skip)]
    bound: String,
    /// `None` if the goal was not measured.
    passed: Option<bool>,
    /// Whether every run has the same figures, so that one round is enough.
    constant: bool,
    /// Reasons for missing columns.
    absent: Vec<String>,
    /// The rounds behind the result.
    rounds: Vec<Round>,
}

impl<'a> Report<'a> {
    /// Judges a row by the rounds of each of its goals.
    pub(crate) fn new(
        row: &'static Row,
        (machine, session): (&'a Machine, &'a Session),
        taken: &[Taken],
    ) -> Result<Self> {
        let both = || row.goals.iter().zip(taken);
        let mut tables: Vec<Table> = Vec::new();
        for (goal, taken) in both() {
            let name = goal.measure().name();
            if !tables.iter().any(|table| table.name == name) {
                tables.push(Table::new(goal.measure(), taken));
            }
        }
        Ok(Self {
            row: row.name,
            what: row.what,
            machine,
            session,
            goals: both()
                .map(|(goal, taken)| Outcome::new(goal, taken))
                .collect::<Result<_>>()?,
            published: &row.published,
            tables,
        })
    }

    /// Number of missed goals.
    pub(crate) fn missed(&self) -> usize {
        self.count(|goal| goal.passed == Some(false))
    }

    /// Number of goals that were not measured.
    pub(crate) fn not_measured(&self) -> usize {
        self.count(|goal| goal.passed.is_none())
    }

    /// Number of goals with a bound that were not measured.
    pub(crate) fn not_judged(&self) -> usize {
        self.count(|goal| goal.passed.is_none() && goal.must != Must::Free)
    }

    fn count(&self, counts: impl Fn(&Outcome) -> bool) -> usize {
        self.goals.iter().filter(|goal| counts(goal)).count()
    }

    /// Prints the row. If several goals have the same measure, the measure's table is printed once.
    pub(crate) fn print(&self) {
        tell!("{}: {}", self.row, self.what);
        for table in &self.tables {
            tell!("{}", table.text().trim_end_matches('\n'));
        }
        for goal in &self.goals {
            tell!("  {}", goal.line());
        }
        for line in self.published {
            tell!("  published: {line}");
        }
        tell!("");
    }

    /// Writes `NAME.json` and `NAME.svg` to a directory.
    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        let path = directory.join(self.row).with_extension("json");
        let write =
            || -> Result<()> { Ok(serde_json::to_writer_pretty(File::create(&path)?, self)?) };
        write().with_context(|| format!("writing {}", path.display()))?;
        let path = directory.join(self.row).with_extension("svg");
        let picture = plot::Picture {
            heading: format!("{}: {}", self.row, self.what),
            captions: self.machine.captions(self.session).into(),
            warning: self.machine.warning(self.session),
            panels: self.panels(),
        };
        plot::draw(&path, &picture).with_context(|| format!("writing {}", path.display()))
    }

    /// The panels of the plot: one with the measured values of each figure, and one with the ratios
    /// or differences, if goals compare columns by this figure.
    fn panels(&self) -> Vec<plot::Panel> {
        let mut panels: Vec<plot::Panel> = Vec::new();
        let mut add = |title: String, bars: Vec<plot::Bar>| {
            let is_new = !panels.iter().any(|panel| panel.title == title);
            if is_new && !bars.is_empty() {
                panels.push(plot::Panel { title, bars });
            }
        };
        for goal in &self.goals {
            let Some(table) = self.tables.iter().find(|table| table.name == goal.measure) else {
                continue;
            };
            let direction = goal.figure.direction();
            let direction = direction.map_or_else(String::new, |it| format!(" ({it})"));
            let (figure, table_name) = (goal.figure.name(), &table.name);
            let compared = self.goals.iter().filter(|other| {
                other.measure == goal.measure
                    && other.figure == goal.figure
                    && other.compared == goal.compared
            });
            let bars: Vec<plot::Bar> = compared.filter_map(Outcome::bar).collect();
            let kind = match goal.compared {
                Compared::Ratio => Some("ratio"),
                Compared::Difference => Some("difference"),
                Compared::Alone => None,
            };
            if let Some(kind) = kind {
                add(format!("{figure}: {kind}, {table_name}{direction}"), bars);
            }
            let title = format!("{figure}: measured, {table_name}{direction}");
            add(title, table.bars(goal.figure));
        }
        panels
    }
}

/// Removes the files that an earlier session wrote for a row that has failed now, so that these
/// files are not taken for results of this session.
pub(crate) fn forget(row: &str, directory: &Path) -> Result<()> {
    for extension in ["json", "svg"] {
        let path = directory.join(row).with_extension(extension);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("removing {}", path.display()));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

impl Outcome {
    fn new(goal: &'static Goal, taken: &Taken) -> Result<Self> {
        let spread = goal.spread(&taken.rounds);
        let is_absent = |key| taken.absent.iter().any(|(column, _)| column.key == key);
        let explained =
            is_absent(goal.of) || is_absent(goal.to) || goal.over.is_some_and(is_absent);
        if spread.is_none() && !explained {
            anyhow::bail!("{}: a round lacks {}", goal.what, goal.figure.name());
        }
        let why =
            |(column, why): &(&crate::column::Column, String)| format!("{}: {why}", column.name);
        Ok(Self {
            what: goal.what,
            measure: goal.measure().name(),
            figure: goal.figure,
            compared: goal.compared,
            of: goal.of,
            to: goal.to,
            over: goal.over,
            spread,
            must: goal.must,
            aim: goal.aim,
            bound: goal.bound(),
            passed: spread.map(|spread| goal.must.holds(spread)),
            constant: goal.measure().constant(),
            absent: taken.absent.iter().map(why).collect(),
            rounds: taken.rounds.clone(),
        })
    }

    /// The result as a bar.
    fn bar(&self) -> Option<plot::Bar> {
        Some(plot::Bar {
            name: self.what,
            spread: self.spread?,
        })
    }

    fn line(&self) -> String {
        let Some(spread) = self.spread else {
            return format!("{:<40}not measured here", self.what);
        };
        let value = match self.compared {
            Compared::Ratio => spread.text(3) + &spread.quartiles_text(3),
            Compared::Alone => {
                let digits = self.figure.digits();
                spread.text(digits) + &spread.quartiles_text(digits)
            }
            Compared::Difference => {
                let [median, least, most] = [spread.median, spread.least, spread.most];
                format!("{median:.0} ({least:.0} to {most:.0})") + &spread.quartiles_text(0)
            }
        };
        let verdict = match self.passed {
            _ if self.must == Must::Free => "",
            Some(true) => "PASS",
            _ => "SHORT",
        };
        let line = format!("{:<40}{value:<38}  {:<30}{verdict}", self.what, self.bound);
        line.trim_end().to_owned()
    }
}
