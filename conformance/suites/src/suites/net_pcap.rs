//! The tests of Net::Pcap, Perl's binding: live captures with every function of the library.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::command::{self, BUILD};
use crate::fetch;
use crate::outcome::Outcome;
use crate::place::Place;
use crate::session::Session;
use crate::suite::{Built, Suite, Traffic};

pub(crate) static SUITE: Suite = Suite {
    name: "net-pcap",
    what: "Perl's Net::Pcap, live",
    traffic: Traffic::Constant,
    prepare,
    run,
};

fn prepare(place: &Place) -> Result<Built> {
    fetch::installed("prove")?;
    let dir = fetch::debian_source(place, "libnet-pcap-perl")?;
    if !dir.join("blib/arch/auto/Net/Pcap/Pcap.so").exists() {
        let log = place.log("build.net-pcap")?;
        for words in [["perl", "Makefile.PL"], ["make", "all"]] {
            let mut step = command::bounded(words[0], BUILD);
            command::step(step.arg(words[1]).current_dir(&dir), &log)?;
        }
    }
    let perl = fetch::first_line("perl", &["-e", "print $^V"])?;
    let version = format!("{}, perl {perl}", fetch::debian_version(&dir)?);
    Ok(Built { dir, version })
}

fn run(built: &Built, session: &Session) -> Result<Outcome> {
    // Tests whose names begin with 5 belong to other modules. Tests without a number check the
    // distribution.
    let mut files = Vec::new();
    for entry in fs::read_dir(built.dir.join("t"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(['0', '1', '2']) && name.ends_with(".t") {
            files.push(format!("t/{name}"));
        }
    }
    files.sort();
    let mut prove = session.program("prove", LIMIT);
    prove
        .args(["-b", "-v"])
        .args(&files)
        .current_dir(&built.dir);
    let said = session.run("", &mut prove)?.said;
    parse(&said)
}

/// Parses the Test Anything Protocol as prove(1) prints it, and prove's closing lines.
fn parse(said: &str) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut file = "";
    let mut whole_files = 0;
    for line in said.lines() {
        if let Some((name, rest)) = line.split_once(".t ..") {
            file = name;
            whole_files += usize::from(rest.contains(" skipped"));
        } else if let Some((passed, number, directive)) = test_line(line) {
            if directive.contains("SKIP") {
                outcome.skipped += 1;
            } else {
                // Count expected failures as prove(1) counts them. A test's description contains
                // addresses and numbers of the run, so it can't identify the test.
                let name = format!("{file} #{number}");
                outcome.add(&name, passed || directive.contains("TODO"));
            }
        }
    }
    let seen = outcome.executed() + outcome.skipped;
    let tests = counted(said)?;
    ensure!(seen == tests, "{seen} tests seen, {tests} counted");
    outcome.skipped += whole_files;
    // Count a test file that ends early as a failure, even if its tests printed no failure.
    for line in said.lines().filter(|line| line.contains("(Wstat: ")) {
        if !line.contains("(Wstat: 0 ") {
            outcome.fail(line.split_whitespace().next().unwrap_or_default());
        }
    }
    Ok(outcome)
}

/// Parses a test's line: whether it is ok, its number, and the directive after `#`, in capitals.
fn test_line(line: &str) -> Option<(bool, &str, String)> {
    let (passed, rest) = match line.strip_prefix("not ok ") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok ")?),
    };
    let number = rest.split_whitespace().next()?;
    let directive = rest
        .split_once(" # ")
        .map_or("", |(_, directive)| directive);
    Some((passed, number, directive.to_uppercase()))
}

/// The number of tests in prove's closing line.
fn counted(said: &str) -> Result<usize> {
    let line = said.lines().rev().find(|line| line.starts_with("Files="));
    let tests = line.context("no closing line")?.split("Tests=").nth(1);
    let number = tests.and_then(|rest| rest.split(',').next());
    Ok(number.context("no number of tests")?.parse()?)
}

const LIMIT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "t/01-api.t ......... \n1..4\nok 1 - loaded\nok 2 # skip no function\n\
        not ok 3 - counted # TODO BUG\nnot ok 4 # TODO & SKIP crashes\nok\nt/02-lookup.t ..\n1..1\n\
        not ok 1 - device\nFailed 1/1 subtests\nt/21-next_ex.t ... skipped: slowness\n\
        \nTest Summary Report\n-------------------\n\
        t/01-api.t       (Wstat: 0 Tests: 4 Failed: 0)\n  TODO passed:   3\n\
        t/02-lookup.t    (Wstat: 256 (exited 1) Tests: 1 Failed: 1)\n  Failed test:  1\n\
        Files=3, Tests=5,  1 wallclock secs ( 0.07 usr )\nResult: FAIL\n";

    #[test]
    fn skipped_and_expected_failures_are_told_apart() {
        let outcome = parse(SAID).unwrap();
        assert_eq!(outcome.to_string(), "2 passed, 2 failed, 3 skipped");
        assert!(outcome.failing.contains("t/02-lookup #1"));
        assert!(outcome.failing.contains("t/02-lookup.t"));
    }

    #[test]
    fn tests_that_were_not_seen_are_an_error() {
        assert!(parse(&SAID.replace("Tests=5", "Tests=6")).is_err());
        assert!(parse("ok 1\n").is_err());
    }
}
