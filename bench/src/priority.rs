//! Programs that must have their CPU to themselves.

use std::ffi::OsStr;
use std::path::Path;

use fanpcap_testkit::Program;

/// With autogroups, nice counts within a session only, so the program gets a session of its own,
/// whose weight is raised (sched(7)). `setsid` does not fork here: the process keeps its number.
const FIRST: &str = "echo -20 2>/dev/null >/proc/self/autogroup; exec nice -n -20 \"$@\"";

/// A program that prints `ready` once it is, and runs before all others, on one CPU if that is
/// given.
pub(crate) fn program(
    library: &Path,
    program: impl AsRef<OsStr>,
    ready: &'static str,
    cpu: Option<&str>,
) -> Program {
    let pinned: &[&str] = cpu.as_slice();
    let pinned = pinned.iter().flat_map(|cpu| ["taskset", "-c", *cpu]);
    Program::on(library, "setsid", ready)
        .args(["sh", "-c", FIRST, "sh"])
        .args(pinned)
        .arg(program)
        .ends_with_caller()
}
