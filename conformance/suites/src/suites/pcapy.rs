//! The tests of pcapy-ng, a Python binding. We build pcapy-ng from source, because its wheels
//! contain their own libpcap.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::{self, BUILD};
use crate::fetch;
use crate::outcome::Outcome;
use crate::place::Place;
use crate::session::Session;
use crate::suite::{Built, Suite, Traffic, program};
use crate::{tap, wire};

const VERSION: &str = "2.1.0";

pub(crate) static SUITE: Suite = Suite {
    name: "pcapy-ng",
    what: "Python's pcapy-ng, and a live program of ours",
    traffic: Traffic::Constant,
    prepare,
    run,
};

fn prepare(place: &Place) -> Result<Built> {
    fetch::installed("python3")?;
    let log = place.log("build.pcapy-ng")?;
    let dir = place.made(&format!("pcapy-ng-{VERSION}"), |dir| {
        let package = format!("pcapy-ng=={VERSION}");
        let mut venv = command::bounded("python3", BUILD);
        command::step(venv.args(["-m", "venv"]).arg(dir.join("venv")), &log)?;
        let built = ["install", "--no-binary", "pcapy-ng", &package];
        command::step(pip(dir).args(built), &log)?;
        let source = [
            "download",
            "--no-deps",
            "--no-binary",
            ":all:",
            "-d",
            ".",
            &package,
        ];
        command::step(pip(dir).args(source), &log)?;
        fetch::unpack(
            &fetch::only_file(dir, ".tar.gz")?,
            &dir.join("source"),
            &log,
        )
    })?;
    let python = fetch::first_line("python3", &["--version"])?;
    let version = format!("{VERSION}, {python}");
    Ok(Built { dir, version })
}

fn pip(dir: &Path) -> Command {
    let mut pip = command::bounded(dir.join("venv/bin/pip"), BUILD);
    pip.current_dir(dir);
    pip
}

fn run(built: &Built, session: &Session) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for file in ["pcapytests", "test_fast"] {
        let mut tests = session.program(built.dir.join("venv/bin/python"), LIMIT);
        tests
            .args(["-m", "unittest", "-v", file])
            .current_dir(built.dir.join("source/tests"));
        let said = session.run(file, &mut tests)?.said;
        outcome.absorb(parse(&said).with_context(|| file.to_owned())?);
    }
    // pcapy-ng's own live tests are switched off, so run our program.
    let mut live = session.program(built.dir.join("venv/bin/python"), LIMIT);
    live.arg(program("pcapy_live.py")).arg(wire::DEVICE);
    live.current_dir(&session.scratch);
    outcome.absorb(tap::parse(&session.run("live", &mut live)?.said)?);
    Ok(outcome)
}

/// Parses unittest's closing lines: the headings of failures, `Ran N tests`, and the counts unless
/// all tests passed.
fn parse(said: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for kind in ["FAIL: ", "ERROR: "] {
        for name in said.lines().filter_map(|line| line.strip_prefix(kind)) {
            outcome.fail(name.split(' ').next().unwrap_or_default());
        }
    }
    let ran = said
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("Ran "));
    let ran = ran
        .context("no closing line")?
        .split(' ')
        .next()
        .unwrap_or_default();
    let ran: usize = ran.parse()?;
    let end = said.lines().last().unwrap_or_default();
    outcome.skipped = number_after(end, "skipped=");
    let passed = ran.checked_sub(outcome.skipped + outcome.failing.len());
    outcome.passed = passed.context("more failures than tests")?;
    Ok(outcome)
}

fn number_after(line: &str, name: &str) -> usize {
    let rest = line.split_once(name).map_or("", |(_, rest)| rest);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or(0)
}

const LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_what_neither_failed_nor_was_skipped() {
        let said = "testClose (x.T) ... ok\n=====\nFAIL: testEOF (x.T)\n---\nAssertionError\n\
            -----\nRan 7 tests in 0.002s\n\nFAILED (failures=1, skipped=2)\n";
        let outcome = parse(said).unwrap();
        assert_eq!(outcome.to_string(), "4 passed, 1 failed, 2 skipped");
        assert!(outcome.failing.contains("testEOF"));
        let all = parse("...\n-----\nRan 3 tests in 0.1s\n\nOK\n").unwrap();
        assert_eq!(all.to_string(), "3 passed, 0 failed, 0 skipped");
        assert!(parse("Segmentation fault\n").is_err());
    }
}
