//! tcpdump's own tests: the installed program prints the captures in tcpdump's source.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::{self, BUILD};
use crate::fetch;
use crate::outcome::Outcome;
use crate::place::Place;
use crate::session::Session;
use crate::suite::{Built, Suite, Traffic};

pub(crate) static SUITE: Suite = Suite {
    name: "tcpdump",
    what: "tcpdump's tests of printing and filters",
    traffic: Traffic::Silent,
    prepare,
    run,
};

fn prepare(place: &Place) -> Result<Built> {
    fetch::installed("tcpdump")?;
    let dir = fetch::debian_source(place, "tcpdump")?;
    // The tests read in config.h how tcpdump was built. So make this file with the package's build
    // options.
    if !dir.join("config.h").exists() {
        let mut configure = command::bounded("./configure", BUILD);
        configure
            .args(["--with-crypto=yes", "--with-user=tcpdump"])
            .current_dir(&dir);
        command::step(&mut configure, &place.log("build.tcpdump")?)?;
    }
    let program = fetch::first_line("tcpdump", &["--version"])?;
    let version = format!("{}, {program}", fetch::debian_version(&dir)?);
    Ok(Built { dir, version })
}

fn run(built: &Built, session: &Session) -> Result<Outcome> {
    let mut tests = session.program("tests/TESTrun", LIMIT);
    tests
        .current_dir(&built.dir)
        .env("TCPDUMP_BIN", fetch::installed("tcpdump")?);
    parse(&session.run("", &mut tests)?.said)
}

/// Parses the output: one line for each test, and at the end the numbers of failed and passed
/// tests.
fn parse(said: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for line in said.lines() {
        let Some((name, verdict)) = line.strip_prefix("    ").and_then(|l| l.split_once(": "))
        else {
            continue;
        };
        match verdict.split_whitespace().next() {
            Some("passed") => outcome.passed += 1,
            Some("skipped") => outcome.skipped += 1,
            _ if verdict.contains("FAILED") => outcome.fail(name.trim()),
            _ => {}
        }
    }
    let closing = said
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_suffix(" tests passed"));
    let passed: usize = closing.context("no closing line")?.parse()?;
    anyhow::ensure!(
        passed == outcome.passed,
        "{passed} passed, not {}",
        outcome.passed
    );
    Ok(outcome)
}

const LIMIT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_closing_line_agree() {
        let said = "Running tests from /x\n    ipx          : skipped (ENABLE_SMB not set)\n    \
            ipx-nosmb    : passed\n    esp1    : TEST FAILED(exit core=0/diffstat=1,0/r=0)\n\
            ------\n   1 tests failed\n   1 tests passed\n";
        let outcome = parse(said).unwrap();
        assert_eq!(outcome.to_string(), "1 passed, 1 failed, 1 skipped");
        assert!(outcome.failing.contains("esp1"));
        assert!(parse(&said.replace("   1 tests passed", "   2 tests passed")).is_err());
        assert!(parse("perl: not found\n").is_err());
    }
}
