//! Handles signals to this command: forwards them to the copies. Some signals also end all copies.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_config::report::harmless_text;
use fanpcap_linux::process::child::{
    self, SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
};
use fanpcap_linux::wait::events::{self, Arrived, Signals};

use super::Watch;
use crate::copy::Copy;

/// The signals that this command handles.
const TAKEN: [i32; 9] = [
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
];

/// A second signal to end kills the copies only if at least this much time has passed since the
/// first. Some senders send the same signal twice in a row.
const PATIENCE: Duration = Duration::from_millis(200);

/// When the copies have had this much time since they first got a signal to end, a message names
/// those that have not ended.
const NAMED_AFTER: Duration = Duration::from_secs(5);

/// Takes the signals. SIGHUP stays ignored if it was, as under nohup(1). SIGINT and SIGQUIT don't:
/// a script that starts this command with `&` ignores both, but means to end it by SIGINT, as
/// applications that capture can be ended.
///
/// # Errors
/// The signals can't be taken.
pub(super) fn take() -> Result<Signals> {
    let heeded = [SIGINT, SIGQUIT].into_iter().try_for_each(events::heed);
    heeded
        .and_then(|()| Signals::take(&TAKEN))
        .context("taking signals")
}

impl Watch<'_> {
    /// Handles the signals that have come.
    ///
    /// # Errors
    /// read(2) failed.
    pub(super) fn take_signals(&mut self) -> Result<()> {
        while let Some(signal) = self.signals.next().context("reading signals")? {
            self.forward(signal)?;
        }
        Ok(())
    }

    /// Forwards a signal to the copies.
    fn forward(&mut self, arrived: Arrived) -> Result<()> {
        let Arrived {
            signal,
            from_kernel,
        } = arrived;
        if signal == SIGCHLD {
            return Ok(());
        }
        // A SIGHUP from the kernel means that the terminal is gone. For a SIGHUP from a process,
        // each application defines the meaning, so this command only forwards the signal.
        let ends = [SIGINT, SIGQUIT, SIGTERM].contains(&signal);
        let is_second = self
            .stopped
            .is_some_and(|first| first.elapsed() >= PATIENCE);
        if ends && is_second && self.last_packets.is_none() {
            self.kill();
            return Ok(());
        }
        if ends || (signal == SIGHUP && from_kernel) {
            let is_first = self.stopped.is_none();
            self.stop();
            // SIGQUIT asks for an end at once, and for a dump of the memory as it is.
            if is_first && signal != SIGQUIT && self.await_last_packets(signal) {
                return Ok(());
            }
            if self.last_packets.is_some() {
                if is_second || signal == SIGQUIT {
                    self.send_to_end(signal);
                }
                return Ok(());
            }
            if is_first {
                self.say_that_it_ends();
            }
        }
        self.forwarded.insert(signal, Instant::now());
        self.signal(signal);
        if signal == SIGTSTP {
            child::stop_here().context("stopping, as the copies do")?;
        }
        Ok(())
    }

    /// Forwards a signal to end to the copies, which have taken their last packets or are not
    /// awaited any more.
    pub(super) fn send_to_end(&mut self, signal: i32) {
        self.last_packets = None;
        self.say_that_it_ends();
        self.stopped = Some(Instant::now());
        self.forwarded.insert(signal, Instant::now());
        self.signal(signal);
    }

    fn say_that_it_ends(&self) {
        if self.run.output.is_terminal {
            self.say("the copies got a signal to end; a second signal kills them");
        }
    }

    /// Prints, once, which copies still run although they got a signal to end.
    pub(super) fn say_who_stays(&mut self) {
        let is_late = |stopped: Instant| stopped.elapsed() >= NAMED_AFTER;
        let is_early = self.last_packets.is_some();
        if self.has_said_stays || is_early || !self.stopped.is_some_and(is_late) {
            return;
        }
        self.has_said_stays = true;
        let name = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm"));
        let name = |pid: u32| harmless_text(name(pid).unwrap_or_default().trim());
        let left = self.copies.iter().filter_map(|copy| {
            let pid = copy.pid()?;
            Some(format!(
                "copy {} ({}, process {pid})",
                copy.number,
                name(pid)
            ))
        });
        let left: Vec<String> = left.collect();
        if !left.is_empty() {
            let left = left.join(", ");
            let kills = "a second signal kills them";
            self.say(&format!("waiting for {left} to end; {kills}"));
        }
    }

    fn kill(&mut self) {
        if self.copies.iter().any(|copy| copy.pid().is_some()) {
            self.say("killing the copies");
        }
        self.signal(SIGKILL);
        self.orphans.kill();
        self.run.output.give_up();
    }

    /// From now on, starts no copy, and does not wait for a reader of our output that has stopped
    /// reading.
    fn stop(&mut self) {
        self.run.output.hurry();
        self.ledger.end_of_watch();
        self.stopped.get_or_insert_with(Instant::now);
        for copy in &mut self.copies {
            if copy.pid().is_none() {
                copy.stay_down();
            }
        }
    }

    fn signal(&self, signal: i32) {
        for pid in self.copies.iter().filter_map(Copy::pid) {
            if let Err(error) = child::signal_group(pid, signal) {
                self.say(&format!("signal {signal} to process {pid}: {error}"));
            }
        }
    }

    /// Ends all copies because of an error.
    pub(super) fn abort(&mut self, error: String) {
        if self.failures.error.is_none() {
            self.failures.error = Some(error);
            self.stop();
            self.last_packets = None;
            self.signal(SIGTERM);
        }
    }
}
