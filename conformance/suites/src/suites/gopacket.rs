//! The tests of gopacket's binding, in Go: files, filters, and a live handle that another thread
//! closes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::command::{self, BUILD};
use crate::fetch;
use crate::outcome::Outcome;
use crate::place::Place;
use crate::session::Session;
use crate::suite::{Built, Suite, Traffic};

const MODULE: &str = "github.com/gopacket/gopacket";
const VERSION: &str = "v1.7.7";

pub(crate) static SUITE: Suite = Suite {
    name: "gopacket",
    what: "Go's gopacket/pcap",
    traffic: Traffic::Constant,
    prepare,
    run,
};

fn prepare(place: &Place) -> Result<Built> {
    fetch::installed("go")?;
    let log = place.log("build.gopacket")?;
    let dir = place.made(&format!("gopacket-{VERSION}"), |dir| {
        fs::write(dir.join("go.mod"), "module fetch\n\ngo 1.21\n")?;
        let package = format!("{MODULE}/pcap@{VERSION}");
        command::step(go(dir).args(["get", "-t", &package]), &log)?;
        let package = format!("{MODULE}/pcap");
        command::step(go(dir).args(["test", "-c", "-o", PROGRAM, &package]), &log).map(drop)
    })?;
    let go = fetch::first_line("go", &["env", "GOVERSION"])?;
    let version = format!("{VERSION}, {go}");
    Ok(Built { dir, version })
}

fn go(dir: &Path) -> Command {
    let mut go = command::bounded("go", BUILD);
    go.current_dir(dir);
    go
}

fn run(built: &Built, session: &Session) -> Result<Outcome> {
    let mut tests = session.program(built.dir.join(PROGRAM), LIMIT);
    tests
        .arg("-test.v")
        .current_dir(package_dir(built, session)?);
    parse(&session.run("", &mut tests)?.said)
}

/// The directory of the package's files, where its tests read captures.
fn package_dir(built: &Built, session: &Session) -> Result<PathBuf> {
    let package = format!("{MODULE}/pcap");
    let mut list = go(&built.dir);
    let said = command::step(
        list.args(["list", "-f", "{{.Dir}}", &package]),
        &session.log("dir"),
    )?;
    let dir = said.lines().last().context("the package's directory")?;
    Ok(PathBuf::from(dir))
}

/// Parses the output: a line for each test, indented for subtests, and `PASS` or `FAIL` alone at
/// the end.
fn parse(said: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for line in said.lines() {
        let line = line.trim_start();
        let Some((verdict, rest)) = line.strip_prefix("--- ").and_then(|l| l.split_once(": "))
        else {
            continue;
        };
        match verdict {
            "PASS" => outcome.passed += 1,
            "SKIP" => outcome.skipped += 1,
            _ => outcome.fail(rest.split(' ').next().unwrap_or_default()),
        }
    }
    let ended = said.lines().any(|line| line == "PASS" || line == "FAIL");
    ensure!(ended, "the tests broke off");
    Ok(outcome)
}

const PROGRAM: &str = "pcap.test";
const LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_within_tests_count() {
        let said = "=== RUN   TestBPF\n--- PASS: TestBPF (0.00s)\n    --- FAIL: TestBPF/ip (0.00s)\n\
            --- SKIP: TestLive (0.00s)\nFAIL\n";
        let outcome = parse(said).unwrap();
        assert_eq!(outcome.to_string(), "1 passed, 1 failed, 1 skipped");
        assert!(outcome.failing.contains("TestBPF/ip"));
        assert!(parse("--- PASS: TestBPF (0.00s)\npanic: x\n").is_err());
    }
}
