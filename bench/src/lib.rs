//! Measures our library against its peers, on a wire of its own: `fanpcap bench`, `make bench`.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command's output is for the terminal"
)]

mod bench;
mod cores;
mod cpu;
mod figure;
mod flood;
mod generator;
mod machine;
mod pairs;
mod priority;
mod probes;
mod reader;
mod refusal;
mod report;
mod row;
mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use fanpcap_testkit::netns;

use bench::{Bench, Measure, Options};
use generator::Traffic;
use machine::Machine;
use pairs::Pair;
use report::Report;
use row::{ROWS, Row};

/// Measures this library against its peers, on this machine (as root)
#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<Verb>,
    /// Rows to measure; all, if none is named
    names: Vec<String>,
    /// How many pairs of runs
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// How long a flood lasts
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=10_000))]
    milliseconds: u64,
    /// 2 pairs of short runs: to see that it works, not for figures
    #[arg(long, conflicts_with_all = ["pairs", "milliseconds"])]
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
    /// Where to write NAME.json; target/bench, if not given
    #[arg(long)]
    output: Option<PathBuf>,
    /// One frame more than the generator tells, to see that such runs are refused
    #[arg(long, hide = true)]
    stray: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Tells the rows and their goals
    List,
    /// The generator's process
    #[command(hide = true)]
    Generate(Traffic),
}

/// Does what was asked.
///
/// # Errors
/// What could not be measured, and why.
pub fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.command {
        Some(Verb::List) => {
            list();
            Ok(())
        }
        Some(Verb::Generate(traffic)) => generate(traffic),
        None => measure(arguments),
    }
}

fn list() {
    for row in ROWS {
        println!("{:<12} {}", row.name, row.what);
        for goal in row.goals {
            println!("{:<12} - {} {}", "", goal.what, goal.must.text());
        }
    }
}

fn generate(traffic: &Traffic) -> Result<()> {
    println!("{}", serde_json::to_string(&generator::generate(traffic)?)?);
    Ok(())
}

fn measure(arguments: &Arguments) -> Result<()> {
    let rows = chosen(&arguments.names)?;
    let (pairs, milliseconds) = if arguments.quick {
        (2, 300)
    } else {
        (arguments.pairs, arguments.milliseconds)
    };
    let driver = (arguments.driver != "none").then(|| arguments.driver.clone());
    let options = Options {
        time: Duration::from_millis(milliseconds),
        driver: driver.clone(),
        portable: arguments.portable,
        shared: arguments.shared,
        stray: arguments.stray,
    };
    let target = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    let output = arguments.output.clone().unwrap_or_else(target);
    netns::within_new(|| {
        let bench = Bench::new(options)?;
        let machine = Machine::describe(&bench, driver.as_deref())?;
        println!("{machine}\n{pairs} pairs of runs: median (least-most)\n");
        report(&bench, &rows, pairs, &machine, &output)
    })
}

/// The rows of these names.
fn chosen(names: &[String]) -> Result<Vec<&'static Row>> {
    if names.is_empty() {
        return Ok(ROWS.iter().collect());
    }
    let find = |name: &String| {
        let row = ROWS.iter().find(|row| row.name == name);
        row.with_context(|| format!("no row {name:?}; `list` tells which there are"))
    };
    names.iter().map(find).collect()
}

/// Measures and reports each row. One that can't be measured does not keep the others from it.
fn report(bench: &Bench, rows: &[&Row], pairs: u32, machine: &Machine, to: &Path) -> Result<()> {
    let mut taken = Taken::default();
    let (mut missed, mut broken) = (0, Vec::new());
    for row in rows {
        let mut of_goals = Vec::new();
        let outcome = row
            .goals
            .iter()
            .try_for_each(|goal| -> Result<()> {
                of_goals.push(taken.pairs(bench, goal.measure, pairs)?);
                Ok(())
            })
            .and_then(|()| Report::new(row, machine, &of_goals));
        match outcome {
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

/// What was measured already: rows share runs.
#[derive(Default)]
struct Taken(Vec<(Measure, Vec<Pair>)>);

impl Taken {
    fn pairs(&mut self, bench: &Bench, measure: Measure, count: u32) -> Result<Vec<Pair>> {
        if let Some((_, pairs)) = self.0.iter().find(|(taken, _)| *taken == measure) {
            return Ok(pairs.clone());
        }
        let count = if measure == Measure::Size { 1 } else { count };
        let pairs = pairs::take(bench, measure, count)?;
        self.0.push((measure, pairs.clone()));
        Ok(pairs)
    }
}
