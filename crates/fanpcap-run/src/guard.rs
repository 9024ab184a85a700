//! The guard is a process that ends the copies and their descendants if this command is killed.
//! PR_SET_PDEATHSIG is not enough: the kernel clears it for a process that changes its user, as
//! tcpdump does.

use std::collections::BTreeSet;
use std::env;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_linux::process::child;

use super::processes::{self, GRACE};

const PERIOD: Duration = Duration::from_millis(50);

/// The guard process, and the pipe through which this command tells it the process groups.
#[derive(Debug)]
pub(crate) struct Guard {
    process: Child,
}

impl Guard {
    /// Starts the guard.
    ///
    /// # Errors
    /// The process can't be started.
    pub(crate) fn start() -> Result<Self> {
        let own = env::current_exe().context("where this command is")?;
        let mut command = Command::new(own);
        command.args(["run", "--guard"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // The terminal's signals must not reach the guard.
        command.process_group(0);
        let process = command.spawn().context("starting the guard")?;
        Ok(Self { process })
    }

    /// The guard's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Adds a process group: a copy's, or a group of processes that a copy left behind.
    pub(crate) fn watch(&mut self, group: u32) {
        self.tell('+', group);
    }

    /// Removes a process group that has become empty.
    pub(crate) fn forget(&mut self, group: u32) {
        self.tell('-', group);
    }

    fn tell(&mut self, sign: char, pid: u32) {
        if let Some(pipe) = &mut self.process.stdin {
            // If the guard is gone, the copies still have PR_SET_PDEATHSIG.
            let _ = writeln!(pipe, "{sign}{pid}");
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// The guard's main function. Reads process groups from the pipe until the command has ended, and
/// then ends the remaining groups.
pub(crate) fn stand() -> ExitCode {
    let mut groups = BTreeSet::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let (sign, group) = line.split_at_checked(1).unwrap_or_default();
        match (sign, group.parse::<u32>()) {
            ("+", Ok(group)) => groups.insert(group),
            ("-", Ok(group)) => groups.remove(&group),
            _ => continue,
        };
    }
    if groups.is_empty() {
        return ExitCode::SUCCESS;
    }
    // Find the descendants while their parents live. Afterwards the kernel no longer records which
    // copy they descend from.
    let mut groups = processes::with_descendants(&groups);
    groups.retain(|&group| child::signal_group(group, child::SIGTERM).is_ok());
    let told = groups.clone();
    let deadline = Instant::now() + GRACE;
    while !groups.is_empty() && Instant::now() < deadline {
        thread::sleep(PERIOD);
        groups.retain(|&group| child::signal_group(group, 0).is_ok());
    }
    for &group in &groups {
        // An error is ignored: the group may have ended just now.
        let _ = child::signal_group(group, child::SIGKILL);
    }
    // Print last: standard error may block or be closed.
    for group in told {
        let _ = writeln!(
            io::stderr(),
            "fanpcap: this command was killed; the guard ended the process group {group} of its copy"
        );
    }
    ExitCode::SUCCESS
}
