//! libpcap's own test programs: those programs in its source that need only the library.

mod cases;
mod judge;

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::command::{self, BUILD};
use crate::fetch;
use crate::outcome::Outcome;
use crate::place::Place;
use crate::session::Session;
use crate::suite::{Built, Suite, Traffic};

use cases::{CASES, COMPLAINED, Case, Stop};
use judge::judge;

pub(crate) static SUITE: Suite = Suite {
    name: "libpcap",
    what: "libpcap's test programs, live",
    traffic: Traffic::Constant,
    prepare,
    run,
};

fn prepare(place: &Place) -> Result<Built> {
    fetch::installed("cc")?;
    let dir = fetch::debian_source(place, "libpcap")?;
    for case in CASES {
        let program = dir.join("testprogs").join(case.program());
        let source = program.with_extension("c");
        if source.exists() && !program.exists() {
            let mut cc = command::bounded("cc", BUILD);
            // The programs use libpcap's headers for compilers, which no package installs.
            cc.args(["-O1", "-g", "-D_GNU_SOURCE", "-I."])
                .arg(&source)
                .arg("-o")
                .arg(&program)
                .args(["-lpcap", "-pthread"])
                .current_dir(&dir);
            let log = place.log(&format!("build.libpcap.{}", case.program()))?;
            command::step(&mut cc, &log)?;
        }
    }
    let version = fetch::debian_version(&dir)?;
    Ok(Built { dir, version })
}

/// Runs the long cases all together, while the other cases run one by one.
fn run(built: &Built, session: &Session) -> Result<Outcome> {
    let programs = built.dir.join("testprogs");
    let (long, short): (Vec<&Case>, Vec<&Case>) = CASES
        .iter()
        .partition(|case| case.stop == Stop::AfterAMinute);
    let mut outcome = Outcome::default();
    thread::scope(|scope| {
        let started: Vec<_> = long
            .into_iter()
            .map(|case| (case, scope.spawn(|| run_case(case, &programs, session))))
            .collect();
        for case in short {
            count(&mut outcome, case, run_case(case, &programs, session));
        }
        for (case, thread) in started {
            let verdict = thread.join().expect("a case does not panic");
            count(&mut outcome, case, verdict);
        }
    });
    Ok(outcome)
}

fn count(outcome: &mut Outcome, case: &Case, verdict: Result<Verdict>) {
    match verdict {
        Ok(Verdict::Passed) => outcome.add(case.line, true),
        Ok(Verdict::Skipped) => outcome.skipped += 1,
        Err(error) => outcome.fail(&format!("{} ({error:#})", case.line)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Passed,
    /// The program is not in this version, or the machine lacks a command that runs it.
    Skipped,
}

fn run_case(case: &Case, programs: &Path, session: &Session) -> Result<Verdict> {
    let program = programs.join(case.program());
    let under_valgrind = case.program() == "valgrindtest";
    if !program.exists() || (under_valgrind && fetch::installed("valgrind").is_err()) {
        return Ok(Verdict::Skipped);
    }
    // Use stdbuf, because an interrupted program must have written all its output before the
    // signal.
    let mut command = session.program("stdbuf", limit(case.stop));
    command.args(["-oL", "sh", "-c", FEW_FILES, "sh"]);
    if case.stop == Stop::Interrupted {
        let interrupt = ["timeout", "--preserve-status", "--foreground", "-s", "INT"];
        command.args(interrupt).arg(AFTER);
    }
    if under_valgrind {
        command.args(["valgrind", "--quiet"]);
        command.arg(format!("--error-exitcode={COMPLAINED}"));
    }
    command
        .arg(&program)
        .args(case.arguments())
        .current_dir(&session.scratch);
    let ended = session.run(&case.line.replace([' ', '/'], "_"), &mut command)?;
    let code = ended.status.code();
    judge(case, session.variant, code, &ended.said, &session.scratch)?;
    Ok(Verdict::Passed)
}

fn limit(stop: Stop) -> Duration {
    match stop {
        Stop::ByItself | Stop::Interrupted => Duration::from_secs(30),
        Stop::AfterAMinute => Duration::from_secs(90),
    }
}

/// A limit of open files, because one of the programs opens files until it can open no more.
const FEW_FILES: &str = r#"ulimit -n 1024 && exec "$@""#;

/// A time that is longer than the longest timeout of a capture, 1 s.
const AFTER: &str = "2.5";
