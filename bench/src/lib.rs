//! Measures our library against its peers, on a separate wire. The executable is `fanpcap-bench`,
//! which `fanpcap bench` and `make bench` run.
#![forbid(unsafe_code)]

mod cpu;
mod figure;
mod out;
mod pause;
mod priority;
mod quota;
mod libraries;
mod topology;
mod caches;
mod verdict;
mod wire;
mod refusal;
mod generator;
mod reader;
mod column;
mod bench;
mod spread;
mod compiler;
mod cores;
mod poller;
mod trial;
mod outside;
mod measure;
mod taking;
mod plot;
mod row;
mod table;
mod compare;
mod machine;
mod report;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{CommandFactory, Parser, Subcommand};
use fanpcap_external::BUILD;
use fanpcap_install::library;
use fanpcap_linux::wait::stop;
use fanpcap_terminal::{complete, streams};
use fanpcap_testbed::netns;
use serde::Serialize;

use bench::{Bench, Options};
use compare::Compare;
use compiler::Compiling;
use machine::{Machine, Session};
use measure::Measure;
use out::tell;
use report::Report;
use row::{ROWS, Row};
use taking::{Disturbed, Taken, Taking};
use topology::Pair;

/// Measures this library against its peers, on this machine (as root)
#[derive(Debug, Parser)]
#[command(
    name = "fanpcap-bench",
    bin_name = "fanpcap bench",
    max_term_width = 100,
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Verb>,
    /// Rows to measure; all, if none is named
    #[arg(value_name = "ROW")]
    names: Vec<String>,
    /// How many rounds of runs
    #[arg(long, alias = "pairs", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long a flood lasts
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=10_000))]
    milliseconds: u64,
    /// 2 rounds of short runs: to check that the bench works, not for results
    #[arg(long, conflicts_with_all = ["rounds", "milliseconds"])]
    quick: bool,
    /// PCAP_DRIVER for our library; `none` leaves it unset
    #[arg(long, default_value = "tpacket")]
    driver: String,
    /// Another build of this library, by the directory of its libpcap.so.0.8: adds its columns to
    /// the rows
    #[arg(long, value_name = "DIRECTORY", value_parser = other)]
    other: Option<PathBuf>,
    /// Send with sendmmsg even if live frames work
    #[arg(long)]
    portable: bool,
    /// Accept runs while other processes use the same CPUs: for checks of the bench, not for
    /// results
    #[arg(long)]
    shared: bool,
    /// Discard a round if other processes had more than this many percent of a CPU
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    foreign: u8,
    /// The generator's CPU and the reader's CPU; by default no hyper-threads of the same core
    #[arg(long, value_name = "A,B")]
    cpus: Option<Pair>,
    /// Exit with 1 when a goal that has a bound is missed or could not be measured
    #[arg(long)]
    strict: bool,
    /// Where to write NAME.json and NAME.svg
    #[arg(long, value_name = "DIRECTORY", default_value = "fanpcap-bench")]
    output: PathBuf,
    /// Send one frame more than the generator reports, to check that such runs are refused
    #[arg(long, hide = true)]
    stray: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Lists the rows and their goals
    List,
    Compare(Compare),
    /// The generator's process
    #[command(hide = true)]
    Generate {
        /// What the generator must send, as JSON
        launch: String,
    },
    /// The compiler's process
    #[command(hide = true)]
    Compiler(Compiling),
    #[command(hide = true)]
    Complete(complete::Arguments),
    /// Prints its build, for the command `fanpcap`
    #[command(hide = true)]
    Build,
}

/// The directory of another build of our library.
fn other(text: &str) -> Result<PathBuf, String> {
    let directory = PathBuf::from(text).canonicalize();
    let directory = directory.map_err(|error| error.to_string())?;
    if directory.join(library::NAME).exists() {
        return Ok(directory);
    }
    Err(format!("there is no {}", library::NAME))
}

/// Parses the command line and runs the subcommand.
pub fn main() -> ExitCode {
    // If the row `dicap-headers` has started this process, it is a cluster's node or analyzer.
    if env::args()
        .nth(1)
        .is_some_and(|verb| ["node", "analyzer"].contains(&&*verb))
    {
        return fanpcap_clusterd::main();
    }
    streams::ended(run(&Arguments::parse()))
}

/// The command line, for the manual pages.
pub fn command() -> clap::Command {
    Arguments::command()
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    match &arguments.command {
        Some(Verb::List) => list(),
        Some(Verb::Compare(directories)) => code = compare::compare(directories)?,
        Some(Verb::Generate { launch }) => {
            report_of(&generator::generate(&serde_json::from_str(launch)?)?)?;
        }
        Some(Verb::Compiler(compiling)) => report_of(&compiler::compile(compiling)?)?,
        Some(Verb::Complete(words)) => {
            let rows = ROWS.iter().map(|row| row.name.to_owned()).collect();
            complete::print(command(), &words.words, &[("ROW", rows)])?;
        }
        Some(Verb::Build) => tell!("{BUILD}"),
        None => code = measure(arguments, library::directory()?)?,
    }
    out::finish()?;
    Ok(code)
}

fn list() {
    for row in ROWS.iter() {
        tell!("{:<16}{}", row.name, row.what);
        for goal in &row.goals {
            tell!("{:<16}- {}: {}", "", goal.what, goal.bound());
        }
    }
}

/// Prints the report of one of the bench's own processes.
fn report_of(said: &impl Serialize) -> Result<()> {
    tell!("{}", serde_json::to_string(said)?);
    Ok(())
}

fn measure(arguments: &Arguments, library: PathBuf) -> Result<ExitCode> {
    let rows = chosen(&arguments.names, arguments.other.is_some())?;
    ensure!(
        arguments.other.as_ref() != Some(&library),
        "--other names the directory of the library itself, {}",
        library.display()
    );
    let (rounds, milliseconds) = if arguments.quick {
        (2, 300)
    } else {
        (arguments.rounds, arguments.milliseconds)
    };
    let options = Options {
        time: Duration::from_millis(milliseconds),
        library,
        other: arguments.other.clone(),
        driver: (arguments.driver != "none").then(|| arguments.driver.clone()),
        portable: arguments.portable,
        shared: arguments.shared,
        foreign: f64::from(arguments.foreign) / 100.0,
        stray: arguments.stray,
        cpus: arguments.cpus,
    };
    stop::on_signals().context("catching signals")?;
    let measured = netns::within_new(|| {
        let bench = Bench::new(options)?;
        let machine = Machine::describe(&bench)?;
        let session = Session::begin(milliseconds, rounds, arguments.quick);
        tell!("{machine}\n{session}\n");
        report(&bench, &rows, (&machine, &session), &arguments.output)
    });
    // At this point all namespaces and devices have been removed.
    if let Some(signal) = stop::signal() {
        streams::note(&format!("fanpcap: stopped by signal {signal}\n"));
        return Ok(ExitCode::from(128_u8.saturating_add(signal)));
    }
    Ok(if measured?.fails(arguments.strict) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Counts of goals and rows, over all rows.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Missed goals.
    missed: usize,
    /// Goals that were not measured.
    not_measured: usize,
    /// Goals with a bound that were not measured.
    not_judged: usize,
    /// Rows that failed.
    broken: usize,
}

impl Tally {
    fn fails(self, strict: bool) -> bool {
        self.broken > 0 || strict && self.missed + self.not_judged > 0
    }
}

/// The rows with these names; without names, all rows that can be measured. `has_other` says that
/// there is another build of our library.
fn chosen(names: &[String], has_other: bool) -> Result<Vec<&'static Row>> {
    if names.is_empty() {
        let rows = ROWS.iter().filter(|row| has_other || !row.needs_other());
        return Ok(rows.collect());
    }
    let find = |name: &String| {
        let row = ROWS.iter().find(|row| row.name == name);
        let row =
            row.with_context(|| format!("no row {name:?}; `list` prints the names of all rows"))?;
        ensure!(
            has_other || !row.needs_other(),
            "the row {name} compares with another build of this library: name its directory by --other"
        );
        Ok(row)
    };
    names.iter().map(find).collect()
}

/// Measures and reports each row. A row that fails does not stop the others.
fn report(
    bench: &Bench,
    rows: &[&'static Row],
    (machine, session): (&Machine, &Session),
    to: &Path,
) -> Result<Tally> {
    let known = Known::take(bench, rows, session.rounds)?;
    let (mut tally, mut broken) = (Tally::default(), Vec::new());
    for row in rows {
        let taken: Result<Vec<_>> = row.goals.iter().map(|g| known.of(g.measure())).collect();
        match taken.and_then(|taken| Report::new(row, (machine, session), &taken)) {
            Ok(report) => {
                report.print();
                report.write(to)?;
                tally.missed += report.missed();
                tally.not_measured += report.not_measured();
                tally.not_judged += report.not_judged();
            }
            Err(error) => {
                tell!("{}: BROKEN: {error:#}\n", row.name);
                report::forget(row.name, to)?;
                broken.push(row.name);
            }
        }
    }
    tally.broken = broken.len();
    let Tally {
        missed,
        not_measured,
        ..
    } = tally;
    tell!(
        "{missed} goals missed, {not_measured} goals not measured, {} rows broken",
        broken.len()
    );
    if !broken.is_empty() {
        streams::note(&format!(
            "fanpcap: could not measure {}\n",
            broken.join(", ")
        ));
    }
    Ok(tally)
}

/// The results of measures, by the measures' names. Rows with the same measure share its runs.
struct Known(Vec<(&'static str, Result<Taken>)>);

impl Known {
    /// Runs the measures of all rows, one round of each measure in turn. If a measure fails, it
    /// gets no further rounds. Rounds that other processes have disturbed are taken at the end.
    fn take(bench: &Bench, rows: &[&'static Row], rounds: u32) -> Result<Self> {
        let mut known: Vec<(&str, Result<Taking>)> = Vec::new();
        for goal in rows.iter().flat_map(|row| &row.goals) {
            let name = goal.measure().name();
            if !known.iter().any(|(other, _)| *other == name) {
                known.push((name, Taking::new(bench, goal.measure())));
            }
        }
        for number in 0..2 * rounds {
            for (_, state) in &mut known {
                let Ok(taking) = state else { continue };
                if !taking.lacks(rounds) {
                    continue;
                }
                if let Err(error) = taking.round(bench) {
                    // After a signal this function fails. If it continued, `report` would take the
                    // row for broken and remove the row's files of an earlier session.
                    pause::go_on()?;
                    if number >= rounds || !error.is::<Disturbed>() {
                        *state = Err(error);
                    }
                }
            }
        }
        let taken =
            |(name, state): (&'static str, Result<Taking>)| (name, state.map(Taking::taken));
        Ok(Self(known.into_iter().map(taken).collect()))
    }

    fn of(&self, measure: Measure) -> Result<Taken> {
        let name = measure.name();
        match self.0.iter().find(|(known, _)| *known == name) {
            Some((_, Ok(taken))) => Ok(taken.clone()),
            Some((_, Err(error))) => bail!("{error:#}"),
            None => bail!("{name} was not measured"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_about_another_build_need_one() {
        let builds = ["builds".to_owned()];
        assert!(chosen(&builds, false).is_err());
        assert_eq!(chosen(&builds, true).unwrap().len(), 1);
        let names = |has_other| {
            chosen(&[], has_other)
                .unwrap()
                .into_iter()
                .map(|row| row.name)
        };
        assert!(names(true).any(|name| name == "builds"));
        assert!(!names(false).any(|name| name == "builds"));
        assert!(names(false).any(|name| name == "xdp"));
    }

    #[test]
    fn a_broken_row_fails_and_when_strict_a_goal_too() {
        let good = Tally {
            not_measured: 2,
            ..Tally::default()
        };
        assert!(!good.fails(false) && !good.fails(true));
        let missed = Tally { missed: 1, ..good };
        assert!(!missed.fails(false) && missed.fails(true));
        let unknown = Tally {
            not_judged: 1,
            ..good
        };
        assert!(!unknown.fails(false) && unknown.fails(true));
        let broken = Tally { broken: 1, ..good };
        assert!(broken.fails(false));
    }
}
