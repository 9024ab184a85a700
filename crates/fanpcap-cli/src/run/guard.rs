//! The guard: a process of its own that ends the copies, and what they have started, when this
//! command is killed. The kernel's word for that, PR_SET_PDEATHSIG, is void for a program that
//! changes its user, as tcpdump does.

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

/// The guard, seen from the command.
#[derive(Debug)]
pub(crate) struct Guard {
    process: Child,
}

impl Guard {
    /// Starts it.
    ///
    /// # Errors
    /// When the process can't be made.
    pub(crate) fn start() -> Result<Self> {
        let own = env::current_exe().context("where this command is")?;
        let mut command = Command::new(own);
        command.args(["run", "--guard"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        // Signals of the terminal are not for it.
        command.process_group(0);
        let process = command.spawn().context("starting the guard")?;
        Ok(Self { process })
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// There is this process group: a copy's, or that of what a copy has left behind.
    pub(crate) fn watch(&mut self, group: u32) {
        self.tell('+', group);
    }

    /// Nobody is left in that group.
    pub(crate) fn forget(&mut self, group: u32) {
        self.tell('-', group);
    }

    fn tell(&mut self, sign: char, pid: u32) {
        if let Some(pipe) = &mut self.process.stdin {
            // Without a guard the copies still have the kernel's promise.
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

/// What the guard does: reads which groups there are until nobody writes any more, and ends those
/// left.
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
    // Their parents still live: afterwards nobody knows whose they were.
    let mut groups = processes::with_descendants(&groups);
    groups.retain(|&group| child::signal_group(group, child::SIGTERM).is_ok());
    let told = groups.clone();
    let deadline = Instant::now() + GRACE;
    while !groups.is_empty() && Instant::now() < deadline {
        thread::sleep(PERIOD);
        groups.retain(|&group| child::signal_group(group, 0).is_ok());
    }
    for &group in &groups {
        // It may have ended by now.
        let _ = child::signal_group(group, child::SIGKILL);
    }
    // Said last: it may be that nobody reads it.
    for group in told {
        let _ = writeln!(
            io::stderr(),
            "fanpcap: this command was killed; its copy's process group {group} was told to end"
        );
    }
    ExitCode::SUCCESS
}
