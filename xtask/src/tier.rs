//! Runs cargo's tests as one tier and reads how they went.

use std::process::Stdio;

use anyhow::{Context, Result};

use crate::tally::Tally;
use crate::tree;

/// How a test says that it can't do its work here; the rest of the line is the reason.
const SKIP: &str = "SKIP: ";

/// Runs `cargo test` with these arguments; as root also the tests that are ignored for want of it.
pub(crate) fn cargo_test(
    arguments: &[&str],
    harness: &[&str],
    environment: &[(&str, &str)],
) -> Result<Tally> {
    let root = tree::is_root()?;
    let mut command = tree::cargo(&["test", "--quiet", "--no-fail-fast"])?;
    command
        .args(arguments)
        .args(["--", "--show-output", "--format=pretty"])
        .args(harness);
    command.args(root.then_some("--include-ignored"));
    command.envs(environment.iter().copied());
    // A failed test's own message is enough.
    command.env("RUST_BACKTRACE", "0");
    command.env("FANPCAP_LIB_DIR", tree::staged()?.join("lib"));
    let done = command
        .stderr(Stdio::inherit())
        .output()
        .context("starting cargo test")?;
    let output = String::from_utf8_lossy(&done.stdout);
    let what = format!("cargo test {} ({})", arguments.join(" "), done.status);
    let mut tally = judge(&what, &output, done.status.success());
    if tree::is_ci() && !root && ignored(&output) > 0 {
        println!(
            "  FAIL  {} tests need root, which CI must give them",
            ignored(&output)
        );
        tally.failed += ignored(&output);
        tally.skipped -= ignored(&output);
    }
    Ok(tally)
}

/// Counts what test programs printed. What failed is shown whole, what was skipped with its reason.
pub(crate) fn judge(what: &str, output: &str, succeeded: bool) -> Tally {
    let mut tally = read(output);
    if !succeeded && reported(output).failed == 0 {
        println!("  FAIL  {what}");
        tally.failed = 1;
    }
    if tally.failed > 0 {
        println!("{output}");
    }
    print_skips(output);
    tally
}

/// Adds up the harness' result lines; a test that said SKIP counts as skipped, however it ended.
fn read(output: &str) -> Tally {
    let mut tally = reported(output);
    let has_failed = |test: &str| output.contains(&format!("test {test} ... FAILED\n"));
    for (test, _) in gave_up(output) {
        let ended = match has_failed(test) {
            true => &mut tally.failed,
            false => &mut tally.passed,
        };
        *ended = ended.saturating_sub(1);
        tally.skipped += 1;
    }
    tally
}

/// The harness' result lines.
fn reported(output: &str) -> Tally {
    let mut tally = Tally::default();
    for line in output.lines() {
        if let Some(counts) = line.strip_prefix("test result: ") {
            tally += counted(counts);
        }
    }
    tally
}

/// `ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s`
fn counted(line: &str) -> Tally {
    let number = |what: &str| {
        let before = line.split(&format!(" {what}")).next()?;
        before.rsplit(' ').next()?.parse().ok()
    };
    Tally {
        passed: number("passed").unwrap_or(0),
        failed: number("failed").unwrap_or(0),
        skipped: number("ignored").unwrap_or(0),
    }
}

fn ignored(output: &str) -> usize {
    let results = output
        .lines()
        .filter_map(|line| line.strip_prefix("test result: "));
    results.map(|line| counted(line).skipped).sum()
}

/// The tests that ended without doing their work: name and reason, the first reason of each.
fn gave_up(output: &str) -> Vec<(&str, &str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    let mut test = "";
    for line in output.lines() {
        let heading = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = heading {
            test = name;
        }
        let reason = line.strip_prefix(SKIP);
        if let Some(reason) = reason.filter(|_| found.last().is_none_or(|(last, _)| *last != test))
        {
            found.push((test, reason));
        }
    }
    found
}

fn print_skips(output: &str) {
    for (test, reason) in gave_up(output) {
        println!("  skip  {test}: {reason}");
    }
    for line in output.lines() {
        if let Some((test, reason)) = line.split_once(" ... ignored") {
            let test = test.trim_start_matches("test ");
            println!("  skip  {test}: {}", reason.trim_start_matches(", "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
test a ... ok
test b ... ok
test c ... ignored, needs root

successes:

---- b stdout ----
SKIP: no valgrind here
SKIP: nor anything else

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
test d ... FAILED
---- d stdout ----
SKIP: no header here
test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";

    #[test]
    fn results_add_up_and_a_test_that_gave_up_is_skipped() {
        let tally = read(OUTPUT);
        assert_eq!(
            tally,
            Tally {
                passed: 4,
                failed: 1,
                skipped: 3
            }
        );
        assert_eq!(
            gave_up(OUTPUT),
            [("b", "no valgrind here"), ("d", "no header here")]
        );
        assert_eq!(ignored(OUTPUT), 1);
    }
}
