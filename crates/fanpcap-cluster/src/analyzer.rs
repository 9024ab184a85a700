//! The analyzer: all nodes' records, each packet once, in the order of time.
//!
//! Records wait for a while, so that those of all nodes can be put in order, and so that what is
//! known only later still decides about them: a change of the topology, a node that was cut off.

mod stream;
mod timeline;
mod twins;
mod tenure;
mod counters;

use std::collections::BTreeMap;
use std::fmt;

use fanpcap_buckets::layout::BUCKETS;

use crate::identity::{NodeId, Revision};
use crate::record::{Batch, Record};
use crate::topology::Topology;
use crate::witness::Counts;
pub use counters::Counters;
use stream::{Place, Stream};
use tenure::{Claim, Standing, Tenures};
use timeline::{Held, SPAN, Sender, Timeline};
pub use twins::Twins;

/// Sessions that are remembered.
const SESSIONS: usize = 1024;

/// Different nodes that an analyzer may meet.
const MOST_NODES: usize = 4096;

/// Bytes that may wait at most, so that 32 bits count them.
const MOST_HELD: usize = 1 << 31;

/// A node that was silent for so long says nothing about time any more.
const SILENT: u64 = 5_000_000_000;

/// How an analyzer works. Times are in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnalyzerSettings {
    /// The cluster; batches of others are refused.
    pub cluster: u64,
    /// How long a record waits, at most 4 seconds. At least twice the skew.
    pub hold: u64,
    /// Stamps that two nodes give one packet differ by this at most.
    pub skew: u64,
    /// Most bytes that wait. Beyond, the oldest records wait less.
    pub most_held: usize,
    /// Drawn at random.
    pub seed: u64,
}

/// A node that hung or was cut off sends what it captured so much later, in nanoseconds, and its
/// doubles are still found.
const LATE: u64 = 120_000_000_000;

/// Why a batch was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// It is another cluster's.
    Cluster,
    /// The analyzer knows as many nodes or sessions as it can.
    Full,
    /// The batch came before.
    Again,
    /// It is so old that nobody knows whether it came before.
    Old,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cluster => "a batch of another cluster",
            Self::Full => "a batch of one session more than an analyzer can follow",
            Self::Again => "a batch that came before",
            Self::Old => "a batch that is too old",
        })
    }
}

impl std::error::Error for Refusal {}

/// A packet of the cluster's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered<'a> {
    /// The node that captured it.
    pub node: NodeId,
    /// Its link type (`LINKTYPE_`).
    pub link: u16,
    /// The packet.
    pub record: Record<'a>,
    /// It came too late to stand in order.
    pub late: bool,
}

/// A session's name: the node, its boot, and the session.
type SessionKey = (NodeId, u64, u64);

/// All nodes' records, each packet once, in the order of time.
#[derive(Debug)]
pub struct Analyzer {
    settings: AnalyzerSettings,
    streams: BTreeMap<SessionKey, Stream>,
    numbers: BTreeMap<NodeId, u16>,
    nodes: Vec<(NodeId, Box<Counts>)>,
    timeline: Timeline,
    rules: Rules,
}

/// What decides about a record.
#[derive(Debug)]
struct Rules {
    skew: u64,
    tenures: Tenures,
    twins: Twins,
    /// For each bucket the time in which it moved.
    moved: Vec<(u64, u64)>,
    reach: bool,
    doubles: Box<Counts>,
    counters: Counters,
}

impl Analyzer {
    /// An analyzer that has nothing yet.
    pub fn new(settings: AnalyzerSettings) -> Self {
        let hold = settings.hold.min(SPAN - SPAN / 8);
        Self {
            settings: AnalyzerSettings {
                hold,
                most_held: settings.most_held.min(MOST_HELD),
                ..settings
            },
            streams: BTreeMap::new(),
            numbers: BTreeMap::new(),
            nodes: Vec::new(),
            timeline: Timeline::new(),
            rules: Rules {
                skew: settings.skew,
                tenures: Tenures::default(),
                twins: Twins::new(settings.skew, settings.seed).with_late(LATE),
                moved: vec![(u64::MAX, 0); BUCKETS],
                reach: false,
                doubles: Box::new([0; BUCKETS]),
                counters: Counters::default(),
            },
        }
    }

    /// The cluster has a new topology.
    pub fn follow(&mut self, revision: Revision, topology: Topology) {
        self.rules.tenures.follow(revision, topology);
    }

    /// Whether the coordination engine is in reach. While it is, a record by a topology that the
    /// analyzer has not heard of is refused once it has waited. Else it is taken.
    pub fn reach(&mut self, reach: bool) {
        self.rules.reach = reach;
    }

    /// Takes a batch that came at `now`, in nanoseconds since 1970.
    ///
    /// # Errors
    ///
    /// The batch was refused, which is counted.
    pub fn take(&mut self, batch: &Batch<'_>, now: u64) -> Result<(), Refusal> {
        let taken = self.admit(batch, now);
        self.timeline
            .begin(self.time(now).saturating_sub(self.settings.hold));
        match taken {
            Ok(number) => self.hold(batch, number),
            Err(Refusal::Again) => self.rules.counters.repeated_batches += 1,
            Err(Refusal::Cluster | Refusal::Full | Refusal::Old) => {
                self.rules.counters.refused_batches += 1;
            }
        }
        taken.map(|_| ())
    }

    /// The number of a batch's node, if the batch is one to take.
    fn admit(&mut self, batch: &Batch<'_>, now: u64) -> Result<u16, Refusal> {
        let head = &batch.head;
        if head.cluster != self.settings.cluster {
            return Err(Refusal::Cluster);
        }
        let number = self.number(head.node)?;
        let key = (head.node, head.boot, head.session);
        if !self.streams.contains_key(&key) {
            self.make_room(now)?;
        }
        let stream = self
            .streams
            .entry(key)
            .or_insert_with(|| Stream::new(batch));
        match stream.note(batch, now) {
            Place::Again => return Err(Refusal::Again),
            Place::Old => return Err(Refusal::Old),
            Place::New => {}
        }
        let newest = batch.records().map(|record| record.stamp).max();
        let newest = newest.unwrap_or(batch.stamp());
        stream.ahead = (newest as i64).wrapping_sub(now as i64);
        Ok(number)
    }

    fn number(&mut self, node: NodeId) -> Result<u16, Refusal> {
        if let Some(number) = self.numbers.get(&node) {
            return Ok(*number);
        }
        if self.nodes.len() >= MOST_NODES {
            return Err(Refusal::Full);
        }
        let number = u16::try_from(self.nodes.len()).map_err(|_| Refusal::Full)?;
        self.numbers.insert(node, number);
        self.nodes.push((node, Box::new([0; BUCKETS])));
        Ok(number)
    }

    /// Ends the session that was silent longest, if there is no room for one more.
    fn make_room(&mut self, now: u64) -> Result<(), Refusal> {
        if self.streams.len() < SESSIONS {
            return Ok(());
        }
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.heard);
        let silent = |heard: u64| heard.saturating_add(SILENT) < now;
        let oldest = oldest.filter(|(_, stream)| silent(stream.heard));
        let key = oldest.map(|(key, _)| *key).ok_or(Refusal::Full)?;
        if let Some(stream) = self.streams.remove(&key) {
            self.rules.counters.export_lost += stream.missing();
        }
        Ok(())
    }

    fn hold(&mut self, batch: &Batch<'_>, number: u16) {
        let (node, revision) = (batch.head.node, batch.origin.revision);
        let sender = Sender {
            revision: revision.0,
            node: number,
            link: batch.origin.link,
        };
        let is_newest = self
            .rules
            .tenures
            .newest()
            .is_none_or(|newest| newest == revision);
        let counters = &mut self.rules.counters;
        let captured = &mut self.nodes[usize::from(number)].1;
        let mut first = batch.stamp();
        counters.batches += 1;
        counters.received += u64::from(batch.len());
        for record in batch.records() {
            let (late, ahead) = self.timeline.hold(sender, &record);
            counters.late += u64::from(late);
            counters.ahead += u64::from(ahead);
            captured[usize::from(record.bucket)] += 1;
            first = first.min(record.stamp);
            // By another topology than the newest, any bucket may move.
            if record.marked || !is_newest {
                let moved = &mut self.rules.moved[usize::from(record.bucket)];
                moved.0 = moved.0.min(record.stamp.saturating_sub(self.settings.skew));
                moved.1 = moved.1.max(record.stamp.saturating_add(self.settings.skew));
            }
        }
        self.rules.tenures.note(node, revision, first);
    }

    /// Gives out all records that have waited long enough, the oldest first. `now` is in
    /// nanoseconds since 1970, as it was for [`take`](Self::take).
    pub fn release(&mut self, now: u64, mut give: impl FnMut(&Delivered<'_>)) {
        let until = self.time(now).saturating_sub(self.settings.hold);
        let (rules, nodes) = (&mut self.rules, &self.nodes);
        let mut judge = |held: &Held, captured: &[u8]| {
            rules.judge(held, nodes[usize::from(held.node)].0, captured, &mut give);
        };
        self.timeline.release(until, &mut judge);
        let mut hurried = 0;
        while self.timeline.bytes() > self.settings.most_held {
            self.timeline.release_one(&mut judge);
            hurried += 1;
        }
        rules.counters.hurried += hurried;
        rules.forget(self.timeline.due());
    }

    /// Gives out everything, as before an end.
    pub fn flush(&mut self, mut give: impl FnMut(&Delivered<'_>)) {
        let (rules, nodes) = (&mut self.rules, &self.nodes);
        let mut judge = |held: &Held, captured: &[u8]| {
            rules.judge(held, nodes[usize::from(held.node)].0, captured, &mut give);
        };
        while self.timeline.bytes() > 0 {
            self.timeline.release_one(&mut judge);
        }
    }

    /// The cluster's time: the middle of what the nodes' stamps say, so that one clock that is
    /// wrong is outvoted.
    fn time(&self, now: u64) -> u64 {
        let heard = |stream: &&Stream| stream.heard.saturating_add(SILENT) >= now;
        let mut ahead: Vec<i64> = self
            .streams
            .values()
            .filter(heard)
            .map(|stream| stream.ahead)
            .collect();
        if ahead.is_empty() {
            return now;
        }
        let at = ahead.len() / 2;
        now.saturating_add_signed(*ahead.select_nth_unstable(at).1)
    }

    /// The first batch of a session that the analyzer lacks and still takes.
    pub fn lacks(&self, node: NodeId, boot: u64, session: u64) -> u64 {
        self.streams
            .get(&(node, boot, session))
            .map_or(0, Stream::whole)
    }

    /// What the analyzer has counted.
    pub fn counters(&self) -> Counters {
        let mut counters = self.rules.counters;
        counters.export_lost += self.streams.values().map(Stream::missing).sum::<u64>();
        counters
    }

    /// Doubles that were removed, by bucket.
    pub fn doubles(&self) -> &Counts {
        &self.rules.doubles
    }

    /// Records that came of a node, by bucket.
    pub fn received(&self, node: NodeId) -> Option<&Counts> {
        let number = self.numbers.get(&node)?;
        Some(&self.nodes[usize::from(*number)].1)
    }
}

impl Rules {
    /// Gives a record out, or counts why not.
    fn judge(
        &mut self,
        held: &Held,
        node: NodeId,
        captured: &[u8],
        give: &mut impl FnMut(&Delivered<'_>),
    ) {
        let bucket = usize::from(held.bucket);
        let claim = Claim {
            node,
            revision: Revision(held.revision),
            bucket,
            stamp: held.stamp,
        };
        let standing = self.tenures.standing(&claim, self.skew);
        match standing {
            Standing::Owner | Standing::Shared => {}
            Standing::Unknown if !self.reach => {}
            Standing::Unknown => return self.counters.unknown += 1,
            Standing::Fenced => return self.counters.fenced += 1,
            Standing::Foreign => return self.counters.foreign += 1,
        }
        let (from, until) = self.moved[bucket];
        let is_shared =
            standing != Standing::Owner || held.marked || self.tenures.is_new(&claim, self.skew);
        if is_shared || (from <= held.stamp && held.stamp <= until) {
            let packet = (held.bucket, held.wire_length, captured);
            if self.twins.is_double(held.stamp, held.node, packet) {
                self.counters.doubles += 1;
                self.doubles[bucket] += 1;
                return;
            }
        }
        self.counters.delivered += 1;
        give(&Delivered {
            node,
            link: held.link,
            record: Record {
                stamp: held.stamp,
                wire_length: held.wire_length,
                bucket: held.bucket,
                marked: held.marked,
                captured,
            },
            late: held.late,
        });
    }

    /// Forgets what no record after `time` can have to do with.
    fn forget(&mut self, time: u64) {
        self.twins.forget(time);
        let time = time.saturating_sub(2 * self.skew);
        for moved in &mut self.moved {
            if moved.1 < time {
                *moved = (u64::MAX, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
