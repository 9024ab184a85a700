//! The coordinator's loop: reads the view, decides, writes topologies, and logs each change.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use fanpcap_cluster::coordinator::{Condition, Coordinator, TICK, Write};
use fanpcap_cluster::{Revision, WriteError};

use super::beacons::Beacons;
use super::metrics::Metrics;
use crate::conf::Conf;
use crate::coordination::CoordinatorSide;
use crate::frames;

#[cfg(test)]
mod tests;

/// A coordinator, and the engine that it uses.
pub(super) struct Driver<S> {
    side: Box<dyn CoordinatorSide>,
    core: Coordinator,
    say: S,
    leads: bool,
    /// What the coordinator does now, in one line.
    pub(super) status: String,
    /// The engine's faults that were already reported.
    troubles: Vec<String>,
    /// The last failed write and its error. The error was already reported.
    failed: Option<(Option<Revision>, String)>,
    metrics: Option<Metrics>,
    /// How many topologies this coordinator wrote.
    written: u64,
    beacons: Option<Beacons>,
}

impl<S: FnMut(&str)> Driver<S> {
    pub(super) fn new(
        side: Box<dyn CoordinatorSide>,
        core: Coordinator,
        metrics: Option<Metrics>,
        say: S,
    ) -> Self {
        Self {
            side,
            core,
            say,
            leads: false,
            status: "standing by".to_owned(),
            troubles: Vec::new(),
            failed: None,
            metrics,
            written: 0,
            beacons: None,
        }
    }

    /// From now on, sends frames into the monitored link while this coordinator leads.
    pub(super) fn send(&mut self, beacons: Beacons) {
        self.beacons = Some(beacons);
    }

    /// Waits for the engine's view, calls `now`, and writes the topology that is due.
    pub(super) fn step(&mut self, now: impl FnOnce() -> Duration) -> Result<()> {
        let refused = self.side.all_refused();
        let view = self
            .side
            .poll(TICK / 2)
            .context("the coordination engine")?;
        let step = self.core.step(view, now());
        if self.leads && !view.leads {
            (self.say)("this coordinator no longer leads");
        }
        self.leads = view.leads;
        if let Some(metrics) = &mut self.metrics {
            metrics.write(view, self.written, &refused);
        }
        let revision = view.topology.as_ref().map(|(revision, _)| *revision);
        self.status = match (view.leads, revision) {
            (false, _) => "standing by".to_owned(),
            (true, None) => format!("leads {} nodes, no topology yet", view.live.len()),
            (true, Some(revision)) => {
                format!("leads {} nodes, topology {revision}", view.live.len())
            }
        };
        let beacons = self.beacons.as_mut();
        let message = beacons.and_then(|beacons| beacons.tick(view, frames::now()));
        if let Some(line) = message {
            (self.say)(&line);
        }
        for note in step.notes {
            (self.say)(&note.to_string());
        }
        self.publish();
        match step.write {
            Some(write) => self.write(&write),
            None => Ok(()),
        }
    }

    /// Reports new faults of the engine, and publishes all notes for the status.
    fn publish(&mut self) {
        let troubles = self.side.troubles();
        for new in troubles.iter().filter(|new| !self.troubles.contains(new)) {
            (self.say)(new);
        }
        let conditions = self.core.conditions();
        let conditions = conditions.filter(|note| **note != Condition::Leads);
        let notes = conditions.map(Condition::to_string);
        self.side
            .publish(notes.chain(troubles.iter().cloned()).collect());
        self.troubles = troubles;
    }

    /// Writes a topology. If another coordinator was faster, its topology is in the next view.
    fn write(&mut self, write: &Write) -> Result<()> {
        let error = match self.side.write(&write.topology, write.replaces) {
            Ok(revision) => {
                let replaced = write.replaces.map(|revision| revision.to_string());
                let replaced = replaced.as_deref().unwrap_or("-");
                let change = &write.change;
                (self.say)(&format!(
                    "audit topology={revision} replaces={replaced} {change}"
                ));
                self.failed = None;
                self.written += 1;
                return Ok(());
            }
            Err(WriteError::Engine(error)) => {
                return Err(anyhow!(error).context("writing a topology"));
            }
            Err(error) => error,
        };
        let failed = (write.replaces, error.to_string());
        if self.failed.as_ref() != Some(&failed) {
            (self.say)(&format!("not written: {}: {error}", write.change));
            self.failed = Some(failed);
        }
        Ok(())
    }

    /// Reads the keys again from the files that the settings name now.
    pub(super) fn reload(&mut self, conf: &Conf) {
        let done = self.side.reload(conf).and_then(|()| self.renumber(conf));
        if let Err(error) = done {
            (self.say)(&format!("the old keys stay: {error:#}"));
        }
    }

    fn renumber(&mut self, conf: &Conf) -> Result<()> {
        let first = frames::numbers(conf)?.into_iter().next();
        if let (Some(beacons), Some(numbers)) = (&mut self.beacons, first) {
            beacons.core.set_numbers(numbers);
        }
        Ok(())
    }

    pub(super) fn resign(mut self) {
        self.side.resign();
        // The metrics file outlives the process, so it must not say that this coordinator leads.
        if let Some(metrics) = &mut self.metrics {
            metrics.end(self.written, &self.side.all_refused());
        }
    }
}
