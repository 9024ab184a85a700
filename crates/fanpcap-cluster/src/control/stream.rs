//! Frames in the mirrored stream: when they are due, and the numbers by which nodes recognize them.
//!
//! Strangers on the monitored link can send frames like the coordinator's. So each frame has a
//! number that only holders of the cluster's key can compute in advance. The number is the
//! HMAC-SHA256 of the frame's kind and sequence. For a topology update, the topology's revision is
//! also an input; nodes know it from the control channel. Nodes accept each number once. They
//! compute the numbers, so they recognize beacons even if they reach no coordinator.

use std::collections::BTreeSet;
use std::time::Duration;

use fanpcap_select::Key as SelectionKey;
use fanpcap_select::in_line::{Kind, NUMBERS};
use hmac::Mac;

use super::envelope::{ClusterId, first_eight, mac};
use crate::coordination::View;
use crate::identity::Revision;

#[cfg(test)]
mod tests;

/// Computes the numbers of a cluster's frames.
#[derive(Clone, PartialEq, Eq)]
pub struct FrameNumbers {
    secret: Vec<u8>,
    cluster: ClusterId,
}

impl std::fmt::Debug for FrameNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Numbers({:?})", self.cluster)
    }
}

impl FrameNumbers {
    /// The numbers of the frames of a cluster with this key.
    pub fn new(secret: Vec<u8>, cluster: ClusterId) -> Self {
        Self { secret, cluster }
    }

    /// The number of a frame, which is never 0. A beacon's number does not depend on the revision.
    pub fn of(&self, kind: Kind, revision: Revision, sequence: u64) -> u64 {
        let (which, revision) = match kind {
            Kind::Beacon => (1, 0),
            Kind::Update => (2, revision.0),
        };
        let words = [self.cluster.0, which, revision, sequence].map(u64::to_be_bytes);
        // Envelopes never begin with the label, so an envelope's seal is never a frame's HMAC.
        let bytes = [LABEL, words.as_flattened()].concat();
        first_eight(&mac(&self.secret, &bytes).finalize().into_bytes()).max(1)
    }
}

const LABEL: &[u8] = b"fanpcap frame in the stream";

/// The fields of a frame that the sender and the nodes compute in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DueFrame {
    /// What the frame is for.
    pub kind: Kind,
    /// A beacon's sequence is its time in seconds since 1970. An update has the sequence of the
    /// beacon before it. No two frames of a kind have the same sequence.
    pub sequence: u64,
    /// The frame's number. 0 if nodes must not accept the frame with this sequence.
    pub number: u64,
}

/// With [`SelectionKey::RoundRobin`], an update is sent at least once in this many seconds. At each
/// update, all nodes count from 0 again, also a node that missed a packet and counted wrongly.
const AGAIN: u64 = 8;

/// Computes the frames that the active coordinator sends into the monitored link.
#[derive(Debug)]
pub struct FrameSender {
    numbers: FrameNumbers,
    /// The sequence of the last beacon.
    beacon: u64,
    /// The revision and the sequence of the last topology update.
    update: (Revision, u64),
}

impl FrameSender {
    /// A sender that has sent nothing.
    pub fn new(numbers: FrameNumbers) -> Self {
        Self {
            numbers,
            beacon: 0,
            update: (Revision::default(), 0),
        }
    }

    /// Uses the numbers of another key from now on.
    pub fn set_numbers(&mut self, numbers: FrameNumbers) {
        self.numbers = numbers;
    }

    /// The frames that are due at the time `now`, in seconds since 1970. A beacon is due each
    /// second. If packets are selected in turn, a topology update is due when all nodes with
    /// buckets have acknowledged a new topology, and again every 8 seconds.
    pub fn due(&mut self, view: &View, now: u64) -> Vec<DueFrame> {
        let mut due = Vec::new();
        if !view.leads {
            return due;
        }
        if now > self.beacon {
            self.beacon = now;
            due.push(self.frame(Kind::Beacon, Revision::default(), now));
        }
        if let Some(revision) = awaited(view) {
            let sequence = self.beacon;
            let (last, sent) = self.update;
            let is_new = last != revision && sequence > sent;
            if is_new || sequence >= sent.saturating_add(AGAIN) {
                self.update = (revision, sequence);
                due.push(self.frame(Kind::Update, revision, sequence));
            }
        }
        due
    }

    /// The number of seconds in which no beacon is due because the clock was set back; otherwise 0.
    /// Nodes would refuse beacons that are older than the last one.
    pub fn behind(&self, now: u64) -> u64 {
        self.beacon.saturating_sub(now)
    }

    fn frame(&self, kind: Kind, revision: Revision, sequence: u64) -> DueFrame {
        DueFrame {
            kind,
            sequence,
            number: self.numbers.of(kind, revision, sequence),
        }
    }
}

/// The topology's revision, if packets are selected in turn and all nodes that have buckets have
/// acknowledged the topology. In a union, dead nodes need not acknowledge the topology, because
/// each of their buckets has another owner that captures.
fn awaited(view: &View) -> Option<Revision> {
    let (revision, topology) = view.topology.as_ref()?;
    if topology.selection.key != SelectionKey::RoundRobin {
        return None;
    }
    let tables = [Some(&topology.owners), topology.new_owners.as_ref()];
    let tables = tables.into_iter().flatten();
    let busy: BTreeSet<_> = tables.flat_map(|table| table.iter().flatten()).collect();
    let waits = |node| {
        let mut live = view.live.iter();
        match live.find(|live| live.announcement.node == node) {
            Some(live) => live.acknowledged == Some(*revision),
            None => topology.new_owners.is_some(),
        }
    };
    let mut entries = topology.nodes.iter();
    let all = entries.all(|entry| !busy.contains(&entry.slot) || waits(entry.node));
    all.then_some(*revision)
}

/// The last beacon that a node has accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeardBeacon {
    /// The beacon's sequence.
    pub sequence: u64,
    /// How long ago the beacon came.
    pub ago: Duration,
}

impl HeardBeacon {
    /// Whether the beacon is recent enough to show that the sender is alive and the mirror works.
    pub fn is_recent(&self) -> bool {
        self.ago < SILENCE
    }
}

/// If a node has accepted no beacon for this long, nobody sends beacons, or the node is blind.
pub const SILENCE: Duration = Duration::from_secs(3);

/// A node computes sequences from its last beacon until the beacon is this old. After that time, it
/// computes them from its own clock.
const GUIDED: Duration = Duration::from_secs(60);

/// The agent gives the BPF program frame numbers for this many seconds ahead. So frames are
/// accepted even if the agent is down for this time, or if its clock differs from the coordinator's
/// by this time.
const AHEAD: u64 = 32;

/// Computes the numbers that a node's agent announces to its BPF program.
#[derive(Debug)]
pub struct FrameListener {
    /// The values that compute the frames' numbers, one for each of the cluster's keys.
    numbers: Vec<FrameNumbers>,
    /// The index of the key in use.
    key: usize,
    /// The last sequence that was announced, and the revision with which its numbers were computed.
    announced: Option<(u64, Revision)>,
    /// The greatest sequence of all beacons that the node has accepted.
    last: u64,
    /// Whether an earlier agent may have announced numbers to the BPF program.
    is_successor: bool,
}

impl FrameListener {
    /// A listener that has announced nothing.
    pub fn new(numbers: Vec<FrameNumbers>) -> Self {
        Self {
            numbers,
            key: 0,
            announced: None,
            last: 0,
            is_successor: true,
        }
    }

    /// From now on, uses these keys. If the present key is among them, it stays in use.
    pub fn set_numbers(&mut self, numbers: Vec<FrameNumbers>) {
        let is_current = |other: &FrameNumbers| Some(other) == self.numbers.get(self.key);
        match numbers.iter().position(is_current) {
            Some(key) => self.key = key,
            None => (self.key, self.announced) = (0, None),
        }
        self.numbers = numbers;
    }

    /// Whether the cluster has a key. Without a key, no frame is accepted.
    pub fn is_able(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Forgets what was announced, because there is a new BPF program.
    pub fn restart(&mut self) {
        self.announced = None;
    }

    /// The numbers to announce at the time `now`, in seconds since 1970. `heard` is the node's last
    /// beacon. `revision` is the topology that the node follows or waits for.
    pub fn due(
        &mut self,
        now: u64,
        heard: Option<HeardBeacon>,
        revision: Revision,
    ) -> Vec<DueFrame> {
        self.choose_key(now, heard);
        let Some(numbers) = self.numbers.get(self.key) else {
            return Vec::new();
        };
        let guide = heard.filter(|heard| heard.ago < GUIDED);
        let guided = |heard: HeardBeacon| heard.sequence.saturating_add(heard.ago.as_secs());
        let end = guide.map_or(now, guided).saturating_add(AHEAD);
        let begin = end.saturating_sub(NUMBERS as u64 - 1);
        let before = self.last;
        self.last = before.max(sequence_of(heard));
        let (upto, known) = self.announced.unwrap_or((0, revision));
        // If the announced sequence `upto` is so far beyond `end`, the clock was set back.
        let upto = if upto > end + AHEAD / 8 {
            0
        } else {
            upto.min(end)
        };
        self.announced = Some((end.max(upto), revision));
        let frame = |kind, sequence, is_lost| DueFrame {
            kind,
            sequence,
            // A frame that did not come in time must not be accepted later.
            number: match is_lost {
                true => 0,
                false => numbers.of(kind, revision, sequence),
            },
        };
        // If a beacon and an update have the same sequence, the beacon is sent first.
        let lost_beacons = begin.max(before + 1)..self.last;
        let lost_updates = begin.max(before)..self.last;
        let from = begin.max(upto + 1);
        let beacons = from.max(self.last + 1)..=end;
        // An earlier agent may have announced the update with the last beacon's sequence already.
        let behind = self.last + u64::from(std::mem::take(&mut self.is_successor));
        let updates = if known == revision { from } else { begin }.max(behind)..=end;
        let lost_beacons = lost_beacons.map(|sequence| frame(Kind::Beacon, sequence, true));
        lost_beacons
            .chain(lost_updates.map(|sequence| frame(Kind::Update, sequence, true)))
            .chain(beacons.map(|sequence| frame(Kind::Beacon, sequence, false)))
            .chain(updates.map(|sequence| frame(Kind::Update, sequence, false)))
            .collect()
    }

    /// Tries another key while no beacon comes, because the coordinator may already use that key.
    fn choose_key(&mut self, now: u64, heard: Option<HeardBeacon>) {
        let keys = self.numbers.len() as u64;
        if keys < 2 || heard.is_some_and(|heard| heard.is_recent()) {
            return;
        }
        let key = usize::try_from(now / (2 * SILENCE.as_secs()) % keys).unwrap_or(0);
        if key != self.key {
            self.key = key;
            self.announced = None;
        }
    }
}

fn sequence_of(heard: Option<HeardBeacon>) -> u64 {
    heard.map_or(0, |heard| heard.sequence)
}
