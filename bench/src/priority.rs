//! Starts processes that must have their CPU to themselves.

use std::ffi::OsStr;
use std::path::Path;

use fanpcap_testbed::Program;

/// With autogroups, nice counts only within a session. So the process gets a session of its own,
/// with a higher weight (sched(7)). `setsid` does not fork here: the process keeps its id.
const FIRST: &str = "echo -20 2>/dev/null >/proc/self/autogroup; exec nice -n -20 \"$@\"";

/// An application that prints `ready` once it captures, with the highest priority, pinned to a CPU
/// if one is given.
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
