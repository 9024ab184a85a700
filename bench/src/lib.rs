//! Measures our library against its peers, on a wire of its own: `fanpcap bench`, `make bench`.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command's output is for the terminal"
)]

mod bench;
mod compare;
mod cores;
mod cpu;
mod figure;
mod generator;
mod libraries;
mod machine;
mod measure;
mod outside;
mod plot;
mod priority;
mod reader;
mod refusal;
mod report;
mod row;
mod rows;
mod spread;
mod table;
mod trial;
mod wire;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use fanpcap_testkit::netns;

use bench::{Bench, Options};
use compare::Compare;
use generator::Traffic;
use libraries::Libraries;
use machine::Machine;
use measure::{Measure, Taken};
use report::Report;
use row::Row;
use rows::ROWS;

/// Measures this library against its peers, on this machine (as root)
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Verb>,
    /// Rows to measure; all, if none is named
    names: Vec<String>,
    /// How many rounds of runs
    #[arg(long, alias = "pairs", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// How long a flood lasts
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=10_000))]
    milliseconds: u64,
    /// 2 rounds of short runs: to see that it works, not for figures
    #[arg(long, conflicts_with_all = ["rounds", "milliseconds"])]
    quick: bool,
    /// PCAP_DRIVER for our library; `none` leaves it unset
    #[arg(long, default_value = "tpacket")]
    driver: String,
    /// Send by sendmmsg even where live frames work
    #[arg(long)]
    portable: bool,
    /// Accept runs while others use the same CPUs: to see that it works, not for figures
    #[arg(long)]
    shared: bool,
    /// Where to write NAME.json and NAME.svg
    #[arg(long, value_name = "DIRECTORY", default_value = "fanpcap-bench")]
    output: PathBuf,
    /// One frame more than the generator tells, to see that such runs are refused
    #[arg(long, hide = true)]
    stray: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Tells the rows and their goals
    List,
    Compare(Compare),
    /// The generator's process
    #[command(hide = true)]
    Generate(Traffic),
}

/// Does what was asked; our library is in the directory that `library` finds.
///
/// # Errors
/// What could not be measured, and why.
pub fn run(arguments: &Arguments, library: impl FnOnce() -> Result<PathBuf>) -> Result<ExitCode> {
    match &arguments.command {
        Some(Verb::List) => list(),
        Some(Verb::Compare(directories)) => {
            if !compare::compare(directories)? {
                return Ok(ExitCode::FAILURE);
            }
        }
        Some(Verb::Generate(traffic)) => generate(traffic)?,
        None => measure(arguments, library()?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list() {
    for row in ROWS {
        println!("{:<12} {}", row.name, row.what);
        for goal in row.goals {
            println!("{:<12} - {}: {}", "", goal.what, goal.must.text());
        }
    }
}

fn generate(traffic: &Traffic) -> Result<()> {
    println!("{}", serde_json::to_string(&generator::generate(traffic)?)?);
    Ok(())
}

fn measure(arguments: &Arguments, library: PathBuf) -> Result<()> {
    let rows = chosen(&arguments.names)?;
    let (rounds, milliseconds) = if arguments.quick {
        (2, 300)
    } else {
        (arguments.rounds, arguments.milliseconds)
    };
    let options = Options {
        time: Duration::from_millis(milliseconds),
        libraries: Libraries {
            ours: library,
            driver: (arguments.driver != "none").then(|| arguments.driver.clone()),
        },
        portable: arguments.portable,
        shared: arguments.shared,
        stray: arguments.stray,
    };
    netns::within_new(|| {
        let bench = Bench::new(options)?;
        let machine = Machine::describe(&bench)?;
        println!("{machine}\n{rounds} rounds of runs: median (least-most)\n");
        report(&bench, &rows, rounds, &machine, &arguments.output)
    })
}

/// The rows of these names.
fn chosen(names: &[String]) -> Result<Vec<&'static Row>> {
    if names.is_empty() {
        return Ok(ROWS.to_vec());
    }
    let find = |name: &String| {
        let row = ROWS.iter().find(|row| row.name == name).copied();
        row.with_context(|| format!("no row {name:?}; `list` tells which there are"))
    };
    names.iter().map(find).collect()
}

/// Measures and reports each row. One that can't be measured does not keep the others from it.
fn report(bench: &Bench, rows: &[&Row], rounds: u32, machine: &Machine, to: &Path) -> Result<()> {
    let mut known = Known::default();
    let (mut missed, mut broken) = (0, Vec::new());
    for row in rows {
        let taken = row
            .goals
            .iter()
            .map(|goal| known.take(bench, goal.measure, rounds))
            .collect::<Result<Vec<_>>>();
        match taken.and_then(|taken| Report::new(row, machine, &taken)) {
            Ok(report) => {
                report.print();
                report.write(to)?;
                missed += report.missed();
            }
            Err(error) => {
                println!("{}: BROKEN: {error:#}\n", row.name);
                broken.push(row.name);
            }
        }
    }
    println!("{missed} goals missed, {} rows broken", broken.len());
    ensure!(broken.is_empty(), "could not measure {}", broken.join(", "));
    Ok(())
}

/// What was measured already, by name: rows share runs.
#[derive(Default)]
struct Known(Vec<(String, Taken)>);

impl Known {
    fn take(&mut self, bench: &Bench, measure: &dyn Measure, rounds: u32) -> Result<Taken> {
        let name = measure.name();
        if let Some((_, taken)) = self.0.iter().find(|(known, _)| *known == name) {
            return Ok(taken.clone());
        }
        let taken = measure::take(bench, measure, rounds)?;
        self.0.push((name, taken.clone()));
        Ok(taken)
    }
}
