//! Programs that must have their CPU to themselves.

use anyhow::Result;
use fanpcap_testkit::Program;
use std::ffi::OsStr;

/// With autogroups, nice counts within a session only, so the program gets a session of its own, whose
/// weight is raised (sched(7)). `setsid` does not fork here: the process keeps its number.
const FIRST: &str = "echo -20 2>/dev/null >/proc/self/autogroup; exec nice -n -20 \"$@\"";

/// A program that prints `ready` once it is, and runs before all others.
pub(crate) fn program(program: impl AsRef<OsStr>, ready: &'static str) -> Result<Program> {
    let program = Program::new("setsid", ready)?
        .args(["sh", "-c", FIRST, "sh"])
        .arg(program);
    Ok(program)
}
