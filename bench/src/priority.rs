//! Starts processes with the highest priority on their CPU.

use std::ffi::OsStr;
use std::path::Path;

use fanpcap_testbed::Program;

/// With the kernel's autogroups, a nice value has an effect only within a session. So the process
/// gets a session of its own, and the session gets a higher weight (sched(7)). `setsid` does not
/// fork here: the process keeps its id.
const FIRST: &str = "echo -20 2>/dev/null >/proc/self/autogroup; exec nice -n -20 \"$@\"";

/// An application with the highest priority, pinned to `cpu` if a CPU is given. It prints `ready`
/// as soon as it captures.
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
