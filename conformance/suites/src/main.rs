//! Runs other projects' test suites on the system's libpcap and on ours, and compares the results.
//!
//! The suites come from package registries when they run; this repository contains none of them.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command's output is for the terminal"
)]

mod command;
mod outcome;
mod place;
mod fetch;
mod tap;
mod variant;
mod session;
mod suite;
mod wire;
mod proof;
mod suites;
mod arguments;
mod results;

use std::env;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::library::library_dir;

use arguments::Arguments;
use outcome::Outcome;
use place::Place;
use results::{Report, Row};
use session::Session;
use suite::{Built, Suite};
use variant::Variant;

fn main() -> ExitCode {
    match Arguments::parse(env::args().skip(1)).and_then(|arguments| run(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("fanpcap-suites: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the suites. Returns whether all of them passed as often on our library as on the system's.
fn run(arguments: &Arguments) -> Result<bool> {
    let place = Place::new()?;
    let staged = library_dir()?;
    let mut report = Report::new(arguments.date.clone())?;
    for suite in &arguments.suites {
        println!("{}: {}", suite.name, suite.what);
        let row = compare(suite, &arguments.variants, &place, &staged);
        println!("{}", row.lines());
        report.add(row);
    }
    if arguments.keeps_results() {
        report.write().context("writing the results")?;
    }
    println!("\n{}", report.closing_line());
    Ok(report.all_equal())
}

/// Runs one suite on each variant. Returns the reason if the suite isn't available.
fn compare(suite: &'static Suite, variants: &[Variant], place: &Place, staged: &Path) -> Row {
    let built = match (suite.prepare)(place) {
        Ok(built) => built,
        Err(reason) => return Row::skipped(suite, &format!("{reason:#}")),
    };
    let runs = variants
        .iter()
        .map(|&variant| {
            let begin = Instant::now();
            let outcome = run_once(suite, &built, variant, place, staged)
                .map_err(|error| format!("{error:#}"));
            println!("  {:8} {} s", variant.name(), begin.elapsed().as_secs());
            (variant, outcome)
        })
        .collect();
    Row::ran(suite, built.version, runs)
}

fn run_once(
    suite: &Suite,
    built: &Built,
    variant: Variant,
    place: &Place,
    staged: &Path,
) -> Result<Outcome> {
    let session = Session::new(place, suite.name, variant, staged)?;
    let outcome = wire::within(suite.traffic, || {
        proof::reader(place, &session)?;
        (suite.run)(built, &session)
    })?;
    ensure!(outcome.executed() > 0, "no test ran");
    proof::loads(&session)?;
    Ok(outcome)
}
