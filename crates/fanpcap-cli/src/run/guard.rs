//! The guard: a process of its own that ends the copies when this command is killed. The kernel's word for
//! that, PR_SET_PDEATHSIG, is void for a program that changes its user, as tcpdump does.

use std::collections::BTreeSet;
use std::env;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use fanpcap_linux::child;

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

    /// A copy, leader of its process group, was started.
    pub(crate) fn watch(&mut self, pid: u32) {
        self.tell('+', pid);
    }

    /// A copy has ended.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.tell('-', pid);
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

/// What the guard does: reads which copies there are until nobody writes any more, and ends those left.
pub(crate) fn stand() -> ExitCode {
    let mut copies = BTreeSet::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let (sign, pid) = line.split_at_checked(1).unwrap_or_default();
        match (sign, pid.parse::<u32>()) {
            ("+", Ok(pid)) => copies.insert(pid),
            ("-", Ok(pid)) => copies.remove(&pid),
            _ => continue,
        };
    }
    for &pid in &copies {
        if child::signal_group(pid, child::SIGTERM).is_ok() {
            let _ = writeln!(
                io::stderr(),
                "fanpcap: this command was killed; its copy {pid} is told to end"
            );
        }
    }
    ExitCode::SUCCESS
}
