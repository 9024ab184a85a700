//! The coordinator's frames in the mirrored stream, as the agent sees them: it gives the kernel
//! their numbers, and waits for the update with which a change begins.

use std::time::{Duration, Instant};

use anyhow::Result;
use fanpcap_cluster::Revision;
use fanpcap_cluster::control::stream::{FrameListener, FrameNumbers, HeardBeacon, SILENCE};
use fanpcap_cluster::node::Assignment;
use fanpcap_linux::wait::clock;
use fanpcap_select::Key;

use super::kernel::{Kernel, Prepared};
use super::say;
use crate::frames;
use crate::selector::Selector;

/// Frames in the mirrored stream.
#[derive(Debug)]
pub(super) struct Stream {
    listener: FrameListener,
    /// The assignment that begins with the next update, until it is acknowledged.
    pending: Option<Pending>,
    /// The mark of the prepared table, and its topology, until the update has come.
    prepared: Option<(u32, Revision)>,
    /// Since when the device has this BPF program.
    since: Instant,
}

#[derive(Debug)]
struct Pending {
    assignment: Assignment,
    since: Instant,
}

/// What becomes of a pending assignment.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The kernel waits for the update, and the sender is alive.
    Ready(Revision),
    /// There is no sender: load the assignment at once.
    Silent(Box<Assignment>),
}

impl Stream {
    /// Frames with numbers by the cluster's keys.
    pub(super) fn new(numbers: Vec<FrameNumbers>) -> Self {
        Self {
            listener: FrameListener::new(numbers),
            pending: None,
            prepared: None,
            since: Instant::now(),
        }
    }

    /// Uses numbers by these keys from now on.
    pub(super) fn set_numbers(&mut self, numbers: Vec<FrameNumbers>) {
        self.listener.set_numbers(numbers);
    }

    /// The device has another BPF program.
    pub(super) fn restart(&mut self) {
        self.listener.restart();
        self.since = Instant::now();
    }

    /// Prepares a change that is to begin with the update; `None`: load it at once. If packets are
    /// captured in turn, the update is needed: a newcomer does not know whose turn it is.
    pub(super) fn prepare(
        &mut self,
        kernel: &mut Kernel,
        assignment: &Assignment,
    ) -> Result<Option<Prepared>> {
        (self.pending, self.prepared) = (None, None);
        let Some(target) = assignment.target.as_ref() else {
            return Ok(None);
        };
        let is_heard = kernel.heard().is_some_and(|heard| heard.is_recent());
        let waits = is_heard || kernel.selector().is_none() || self.since.elapsed() < SILENCE;
        if assignment.selection.key != Key::RoundRobin || !self.listener.is_able() || !waits {
            return Ok(None);
        }
        let Some(prepared) = kernel.prepare(assignment, target)? else {
            return Ok(None);
        };
        if prepared.is_new {
            self.restart();
        }
        self.prepared = Some((prepared.mark, assignment.revision));
        self.pending = Some(Pending {
            assignment: assignment.clone(),
            since: Instant::now(),
        });
        Ok(Some(prepared))
    }

    /// Gives the kernel the numbers of the next frames, for a node that captures by the topology
    /// `current`. Returns what becomes of a pending assignment.
    pub(super) fn tick(&mut self, kernel: &Kernel, current: Revision) -> Option<Outcome> {
        let pending = self
            .pending
            .as_ref()
            .map(|pending| pending.assignment.revision);
        self.announce(kernel, pending.unwrap_or(current));
        self.tell_switched(kernel);
        let heard = kernel.heard();
        let pending = self.pending.take()?;
        if heard.is_some_and(|heard| heard.is_recent()) {
            return Some(Outcome::Ready(pending.assignment.revision));
        }
        if pending.since.elapsed() > SILENCE + MARGIN {
            self.prepared = None;
            return Some(Outcome::Silent(Box::new(pending.assignment)));
        }
        self.pending = Some(pending);
        None
    }

    /// Gives the kernel the numbers of the next frames, for a topology of this revision.
    pub(super) fn announce(&mut self, kernel: &Kernel, revision: Revision) {
        let Some(selector) = kernel.selector() else {
            return;
        };
        for due in self.listener.due(frames::now(), kernel.heard(), revision) {
            selector.announce(due.kind, due.sequence, due.number);
        }
    }

    fn tell_switched(&mut self, kernel: &Kernel) {
        let control = kernel.selector().map(Selector::control);
        let Some((mark, revision)) = self.prepared else {
            return;
        };
        if control.is_some_and(|control| control.mark() == mark) {
            say(&format!(
                "the update in the stream began the goal of topology {revision}"
            ));
            self.prepared = None;
        }
    }
}

/// A newcomer's first beacon may come a second after it began to listen.
const MARGIN: Duration = Duration::from_secs(1);

impl Kernel {
    /// The last beacon that the BPF program has accepted.
    pub(super) fn heard(&self) -> Option<HeardBeacon> {
        let beacon = self.selector()?.last_beacon()?;
        let ago = clock::monotonic_ns().saturating_sub(beacon.came_ns);
        Some(HeardBeacon {
            sequence: beacon.sequence,
            ago: Duration::from_nanos(ago),
        })
    }
}
