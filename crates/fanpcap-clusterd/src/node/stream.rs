//! The agent's part in reading the coordinator's frames in the mirrored stream. The agent gives the
//! kernel the numbers of these frames, and waits for the update that begins a change.

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

/// The coordinator's frames in the mirrored stream.
#[derive(Debug)]
pub(super) struct Stream {
    /// The frames' numbers, which depend on the cluster's keys.
    pub(super) listener: FrameListener,
    /// The assignment that takes effect at the next topology update in the mirrored stream, and
    /// since when it waits; `None` after the node has acknowledged it.
    pending: Option<(Assignment, Instant)>,
    /// The prepared table's mark and topology; `None` when an update has put the table into use.
    prepared: Option<(u32, Revision)>,
    /// When the device got its present BPF program.
    since: Instant,
}

/// What to do with a pending assignment.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The kernel waits for the update, and beacons come. So the node acknowledges this topology.
    Ready(Revision),
    /// No beacons come. So the node loads this assignment at once.
    Silent(Box<Assignment>),
}

impl Stream {
    /// A stream whose frames have these numbers.
    pub(super) fn new(numbers: Vec<FrameNumbers>) -> Self {
        Self {
            listener: FrameListener::new(numbers),
            pending: None,
            prepared: None,
            since: Instant::now(),
        }
    }

    /// Forgets which numbers the kernel has, because the device has a new BPF program.
    pub(super) fn restart(&mut self) {
        self.listener.restart();
        self.since = Instant::now();
    }

    /// Prepares a change that takes effect at the next topology update in the mirrored stream.
    /// Returns `None` if the change must be loaded at once. Only `round_robin` needs the update,
    /// because a newcomer without it does not know which node has to capture the next packet.
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
        self.pending = Some((assignment.clone(), Instant::now()));
        Ok(Some(prepared))
    }

    /// Gives the kernel the numbers of the coordinator's next frames. `current` is the revision of
    /// the topology that the node follows. Returns what to do with the pending assignment, once
    /// that is decided.
    pub(super) fn tick(&mut self, kernel: &Kernel, current: Revision) -> Option<Outcome> {
        let pending = self.pending.as_ref().map(|(it, _)| it.revision);
        self.announce(kernel, pending.unwrap_or(current));
        self.tell_switched(kernel);
        let heard = kernel.heard();
        let (assignment, since) = self.pending.take()?;
        if heard.is_some_and(|heard| heard.is_recent()) {
            return Some(Outcome::Ready(assignment.revision));
        }
        if since.elapsed() > SILENCE + MARGIN {
            self.prepared = None;
            return Some(Outcome::Silent(Box::new(assignment)));
        }
        self.pending = Some((assignment, since));
        None
    }

    /// Gives the kernel the numbers of the coordinator's next frames, for the topology `revision`.
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
                "topology {revision}: new owners took effect at the update in the mirrored stream"
            ));
            self.prepared = None;
        }
    }
}

/// How much longer than [`SILENCE`] an assignment waits for beacons, which come once a second.
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
