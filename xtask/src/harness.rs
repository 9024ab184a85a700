//! Runs a test program and reads what Rust's test harness prints.

use std::process::{Command, Output};

use anyhow::{Context, Result};

use crate::programs::Program;
use crate::tally::Tally;
use crate::tree;

/// The beginning of a line by which a test reports that it can't run here. The rest of the line is
/// the reason.
const SKIP: &str = "SKIP: ";

/// The beginning of the reason, if the test needs what a machine may lack, even in CI.
const OPTIONAL: &str = "optional: ";

/// If a test program runs longer than this, it is killed and fails.
const MINUTES_MOST: &str = "20m";

/// This many lines of a failed program's standard error are shown.
const COMPLAINTS: usize = 200;

/// How a test program runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How<'a> {
    /// Arguments of the harness.
    pub(crate) arguments: &'a [&'a str],
    pub(crate) environment: &'a [(&'a str, &'a str)],
    /// Whether the program runs with the lowest CPU priority.
    pub(crate) is_nice: bool,
}

/// Runs a program's tests. As root also runs the tests that are ignored because they need root.
pub(crate) fn run(program: &Program, how: How<'_>) -> Result<Tally> {
    let root = tree::is_root()?;
    let done = started(program, how, root)?;
    let output = String::from_utf8_lossy(&done.stdout);
    let what = format!("{} ({})", program.label(), done.status);
    let complaints = String::from_utf8_lossy(&done.stderr);
    let mut tally = judge(&what, &output, &complaints, done.status.success());
    if tree::is_ci() && !root && ignored(&output) > 0 {
        let ignored = ignored(&output);
        println!("  FAIL  {ignored} tests need root: CI must run as root");
        tally.failed += ignored;
        tally.skipped -= ignored;
    }
    Ok(tally)
}

/// Runs one test alone, and returns whether it passes. The test does not pass if the program ended
/// early or skipped the test.
pub(crate) fn passes_alone(program: &Program, test: &str, how: How<'_>) -> Result<bool> {
    let arguments: Vec<&str> = ["--exact", test]
        .into_iter()
        .chain(how.arguments.iter().copied())
        .collect();
    let how = How {
        arguments: &arguments,
        is_nice: false,
        ..how
    };
    let done = started(program, how, tree::is_root()?)?;
    let [output, complaints] =
        [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let succeeded = done.status.success();
    let what = format!("{} once more ({})", program.label(), done.status);
    let alone = judge(&what, &output, &complaints, succeeded);
    Ok(has_passed(&alone, succeeded))
}

fn has_passed(alone: &Tally, succeeded: bool) -> bool {
    succeeded && alone.passed > 0 && alone.failed == 0 && alone.skipped == 0
}

fn started(program: &Program, how: How<'_>, root: bool) -> Result<Output> {
    let mut command = Command::new("nice");
    command.args(["-n", if how.is_nice { "19" } else { "0" }]);
    // With --foreground, a SIGINT from the terminal still reaches the test program.
    command.args(["timeout", "--foreground", "-k", "10", MINUTES_MOST]);
    command.arg(program.path()).current_dir(program.dir());
    command
        .args(["--show-output", "--format=pretty"])
        .args(root.then_some("--include-ignored"))
        .args(how.arguments);
    command.envs(how.environment.iter().copied());
    command.env("CARGO_MANIFEST_DIR", program.dir());
    // No backtraces: a failed test's message says enough.
    command.env("RUST_BACKTRACE", "0");
    command.env("FANPCAP_LIB_DIR", tree::staged()?.join("lib"));
    let done = command.output();
    done.with_context(|| format!("starting {}", program.path().display()))
}

/// Runs `cargo test` with these arguments, and counts the tests of all its programs together.
pub(crate) fn cargo_test(arguments: &[&str], environment: &[(&str, &str)]) -> Result<Tally> {
    let mut command = tree::cargo(&["test", "--quiet", "--no-fail-fast"])?;
    command
        .args(arguments)
        .args(["--", "--show-output", "--format=pretty"])
        .args(tree::is_root()?.then_some("--include-ignored"));
    command.envs(environment.iter().copied());
    command.env("RUST_BACKTRACE", "0");
    command.env("FANPCAP_LIB_DIR", tree::staged()?.join("lib"));
    let done = command.output().context("starting cargo test")?;
    let what = format!("cargo test {} ({})", arguments.join(" "), done.status);
    let [output, complaints] =
        [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    Ok(judge(&what, &output, &complaints, done.status.success()))
}

/// Counts what test programs printed. Failed tests are shown with their output, skipped tests with
/// their reason. If a test failed, the end of the programs' standard error is shown too: processes
/// that a test started may have written there.
pub(crate) fn judge(what: &str, output: &str, complaints: &str, succeeded: bool) -> Tally {
    let (tally, told, has_crashed) = verdict(what, output, succeeded);
    let has_failed = has_crashed || tally.failed > 0;
    let complaints = if has_failed { complaints } else { "" };
    print!("{told}{}", complained(what, complaints));
    tally
}

/// The last lines of the standard error of failed test programs, under a heading.
fn complained(what: &str, complaints: &str) -> String {
    let lines: Vec<&str> = complaints.lines().collect();
    if lines.is_empty() {
        return String::new();
    }
    let omitted = lines.len().saturating_sub(COMPLAINTS);
    let heading = match omitted {
        0 => format!("---- {what} stderr ----"),
        _ => format!("---- {what} stderr, without its first {omitted} lines ----"),
    };
    format!("{heading}\n{}\n", lines[omitted..].join("\n"))
}

/// The counts, the parts of the output to show, and whether a program ended early.
fn verdict(what: &str, output: &str, succeeded: bool) -> (Tally, String, bool) {
    let mut tally = read(output);
    let mut told = Vec::new();
    let failed = reported(output).failed;
    let has_crashed = !succeeded && (failed == 0 || !is_whole(output));
    if has_crashed || failures(output).len() != failed {
        told.push(output.to_owned());
    }
    if has_crashed {
        tally += Tally::one_failed(what);
    }
    told.extend(tally.failures.iter().map(|test| said(output, test)));
    told.extend(skips(output));
    let told = told.iter().map(|text| format!("{text}\n")).collect();
    (tally, told, has_crashed)
}

/// Whether each test program that started has printed its result line.
fn is_whole(output: &str) -> bool {
    let lines = |start: &str| {
        output
            .lines()
            .filter(|line| line.starts_with(start))
            .count()
    };
    lines("running ") == lines("test result: ")
}

/// The output of a failed test, under the harness' heading.
fn said(output: &str, test: &str) -> String {
    let heading = format!("---- {test} stdout ----");
    let mut lines = output.lines().skip_while(|line| *line != heading);
    let heading = lines.next();
    let is_heading = |line: &str| line.starts_with("---- ") && line.ends_with(" stdout ----");
    let ends = |line: &str| is_heading(line) || line == "failures:" || line == "successes:";
    let lines = lines.take_while(|line| !ends(line));
    heading
        .into_iter()
        .chain(lines)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Adds up the harness' result lines. A test that printed SKIP counts as skipped, even if it
/// failed.
fn read(output: &str) -> Tally {
    let mut tally = reported(output);
    tally.failures = failures(output);
    let has_failed = |test: &str| output.contains(&format!("test {test} ... FAILED\n"));
    for (test, reason) in gave_up(output) {
        let ended = match has_failed(test) {
            true => &mut tally.failed,
            false => &mut tally.passed,
        };
        *ended = ended.saturating_sub(1);
        tally.failures.retain(|failed| failed != test);
        tally.skipped += 1;
        tally.optional += usize::from(reason.starts_with(OPTIONAL));
    }
    tally
}

/// The names of the tests that failed.
fn failures(output: &str) -> Vec<String> {
    let failed = |line: &str| {
        let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        Some(name.to_owned())
    };
    output.lines().filter_map(failed).collect()
}

/// The sums of the harness' result lines.
fn reported(output: &str) -> Tally {
    let mut tally = Tally::default();
    for line in output.lines() {
        if let Some(counts) = line.strip_prefix("test result: ") {
            tally += counted(counts);
        }
    }
    tally
}

/// Reads the rest of a result line:
/// `ok. 5 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
fn counted(line: &str) -> Tally {
    let number = |what: &str| {
        let before = line.split(&format!(" {what}")).next()?;
        before.rsplit(' ').next()?.parse().ok()
    };
    Tally {
        passed: number("passed").unwrap_or(0),
        failed: number("failed").unwrap_or(0),
        skipped: number("ignored").unwrap_or(0),
        ..Tally::default()
    }
}

fn ignored(output: &str) -> usize {
    let results = output
        .lines()
        .filter_map(|line| line.strip_prefix("test result: "));
    results.map(|line| counted(line).skipped).sum()
}

/// The tests that printed SKIP: each test's name, and the first reason that the test printed.
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

/// A line for each skipped test.
fn skips(output: &str) -> Vec<String> {
    let line = |test: &str, reason: &str| format!("  skip  {test}: {reason}");
    let mut lines: Vec<String> = (gave_up(output).into_iter())
        .map(|(test, reason)| line(test, reason))
        .collect();
    for found in output.lines() {
        if let Some((test, reason)) = found.split_once(" ... ignored") {
            let test = test.trim_start_matches("test ");
            lines.push(line(test, reason.trim_start_matches(", ")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "
running 3 tests
test a ... ok
test b ... ok
test c ... ignored, needs root

successes:

---- b stdout ----
SKIP: no valgrind here
SKIP: nor anything else

test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
running 5 tests
test d ... FAILED
test e ... FAILED

failures:

---- d stdout ----
SKIP: optional: no header here
---- e stdout ----
too late
failures:
    d
    e
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
                skipped: 3,
                optional: 1,
                failures: vec!["e".to_owned()],
                ..Tally::default()
            }
        );
        assert_eq!(
            gave_up(OUTPUT),
            [("b", "no valgrind here"), ("d", "optional: no header here")]
        );
        assert_eq!(ignored(OUTPUT), 1);
    }

    #[test]
    fn a_failed_test_has_its_name_and_what_it_said() {
        let (tally, told, _) = verdict("these", OUTPUT, false);
        assert_eq!(tally.failures, ["e"]);
        let skips = "  skip  b: no valgrind here\n  skip  d: optional: no header here\n  skip  c: needs root\n";
        assert_eq!(told, format!("---- e stdout ----\ntoo late\n{skips}"));
    }

    #[test]
    fn the_output_of_a_failed_test_ends_at_the_next_heading() {
        let output = "---- a stdout ----\n---- its own line\nfailed\n---- b stdout ----\nok\n";
        assert_eq!(
            said(output, "a"),
            "---- a stdout ----\n---- its own line\nfailed"
        );
    }

    #[test]
    fn of_long_complaints_the_end_is_shown() {
        assert_eq!(complained("these", ""), "");
        let told = complained("these", "x\ny\n");
        assert_eq!(told, "---- these stderr ----\nx\ny\n");
        let lines: String = (0..COMPLAINTS + 2).map(|it| format!("{it}\n")).collect();
        let told = complained("these", &lines);
        let head = "---- these stderr, without its first 2 lines ----\n2\n3\n";
        assert!(told.starts_with(head), "{told}");
        assert!(told.ends_with(&format!("\n{}\n", COMPLAINTS + 1)), "{told}");
    }

    #[test]
    fn a_second_run_that_crashes_or_skips_forgives_nothing() {
        let one = "running 1 test\ntest a ... ok\n";
        let ok = "test result: ok. 1 passed; 0 failed; 0 ignored;\n";
        let passes = |output: &str, succeeded| {
            has_passed(&verdict("once more", output, succeeded).0, succeeded)
        };
        assert!(passes(&format!("{one}{ok}"), true));
        assert!(!passes(one, false));
        assert!(!passes("running 0 tests\n", true));
        let skipped = format!("{one}---- a stdout ----\nSKIP: no device\n{ok}");
        assert!(!passes(&skipped, true));
    }

    #[test]
    fn a_test_that_said_skip_is_no_failure_however_it_ended() {
        let output = "running 1 test\ntest a ... FAILED\n---- a stdout ----\nSKIP: no device\n\
                      test result: FAILED. 0 passed; 1 failed; 0 ignored;\n";
        let (tally, ..) = verdict("these", output, false);
        assert_eq!(tally.to_string(), "0 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn a_program_that_crashed_has_failed_too() {
        let crashed = format!("{OUTPUT}running 7 tests\n");
        let (tally, ..) = verdict("these", &crashed, false);
        assert_eq!(
            (tally.failed, &*tally.failures),
            (2, &["e".into(), "these".into()][..])
        );
    }
}
