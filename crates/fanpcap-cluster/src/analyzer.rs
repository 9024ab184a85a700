//! The analyzer merges all nodes' records in the order of time, and delivers each packet once.
//!
//! Records wait for a while, so that the records of all nodes can be sorted. In that time the
//! analyzer may also learn facts that decide whether a record is delivered: that the topology has
//! changed, or that a node was cut off.

mod stream;
mod timeline;
mod deduplicator;
mod topology_history;
mod counters;
mod sessions;

use std::collections::BTreeMap;

use fanpcap_buckets::layout::BUCKETS;

use crate::identity::{NodeId, Revision};
use crate::loss_account::Counts;
use crate::record::{Batch, Head, Record};
use crate::topology::{NODES, Topology};
pub use counters::Counters;
pub use deduplicator::Deduplicator;
pub use stream::IdleTime;
use stream::Stream;
use timeline::{BatchFields, SPAN, Timeline, WaitingRecord};
use topology_history::{OwnershipCheck, RecordOrigin, TopologyHistory};

/// How many sessions are remembered.
const SESSIONS: usize = 1024;

/// The maximum number of remembered nodes: a full cluster, and the same number that have left it.
const MOST_NODES: usize = 2 * NODES;

/// The maximum number of bytes that may wait. 32 bits can count them.
const MOST_HELD: usize = 1 << 31;

/// A node that is silent for this many nanoseconds has no records that wait, and its clock does not
/// influence the cluster's time.
const SILENT: u64 = 5_000_000_000;

/// A session whose first batch comes this soon (in nanoseconds) after the analyzer's start may be
/// older than the start. Then the previous analyzer had the session's first batches.
const YOUNG: u64 = 10_000_000_000;

/// An analyzer's settings, with times in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnalyzerSettings {
    /// The cluster's id. Batches of other clusters are refused.
    pub cluster: u64,
    /// How long a record waits before its delivery: at most 4 seconds, and at least twice `skew`.
    pub hold: u64,
    /// The largest difference between two nodes' time stamps of one packet.
    pub skew: u64,
    /// Maximum number of waiting bytes. If more would wait, the oldest records are delivered early.
    pub most_held: usize,
    /// A random number.
    pub seed: u64,
    /// When the analyzer was started, in nanoseconds since 1970.
    pub begin: u64,
}

/// Duplicates are found if a node that hung sends its packets at most this late, in nanoseconds.
const LATE: u64 = 120_000_000_000;

/// Why a batch was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The batch belongs to another cluster.
    Cluster,
    /// The analyzer has the maximum number of nodes or sessions.
    Full,
    /// The batch is a repeat.
    Again,
    /// The batch is so old that the analyzer can't know whether it is a repeat.
    Old,
}

/// A packet that the analyzer delivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered<'a> {
    /// The node that captured the packet.
    pub node: NodeId,
    /// The packet's link type (`LINKTYPE_`).
    pub link: u16,
    /// The topology by which the node captured the packet.
    pub revision: Revision,
    /// The packet.
    pub record: Record<'a>,
    /// Whether the record came too late to be delivered in the order of time.
    pub late: bool,
}

/// What identifies a session: the node, its boot, and the session's number.
type SessionKey = (NodeId, u64, u64);

/// Merges the records of all nodes, and delivers each packet once, in the order of time.
#[derive(Debug)]
pub struct Analyzer {
    settings: AnalyzerSettings,
    streams: BTreeMap<SessionKey, Stream>,
    numbers: BTreeMap<NodeId, u16>,
    /// Each node's id, and when its last batch came. The index is the analyzer's number of the
    /// node.
    nodes: Vec<(NodeId, u64)>,
    timeline: Timeline,
    rules: Rules,
}

/// Decides whether a record is delivered.
#[derive(Debug)]
struct Rules {
    skew: u64,
    topologies: TopologyHistory,
    deduplicator: Deduplicator,
    /// For each bucket, when its last move began and ended.
    moved: Vec<(u64, u64)>,
    /// The analyzer has every topology from before this time, in nanoseconds since 1970.
    known: u64,
    /// A record with a stamp before this time does not change `doubles` and `refused`.
    since: u64,
    doubles: Box<Counts>,
    refused: Box<Counts>,
    counters: Counters,
}

impl Analyzer {
    /// An analyzer that has no records yet.
    pub fn new(settings: AnalyzerSettings) -> Self {
        let hold = settings.hold.min(SPAN - SPAN / 8);
        let (skew, seed, begin) = (settings.skew, settings.seed, settings.begin);
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
                skew,
                topologies: TopologyHistory::default(),
                deduplicator: Deduplicator::new(skew, seed, LATE, begin),
                moved: vec![(u64::MAX, 0); BUCKETS],
                known: 0,
                since: begin,
                doubles: Box::new([0; BUCKETS]),
                refused: Box::new([0; BUCKETS]),
                counters: Counters::default(),
            },
        }
    }

    /// Takes a new topology of the cluster.
    pub fn follow(&mut self, revision: Revision, topology: Topology) {
        self.rules.topologies.follow(revision, topology);
    }

    /// Notes that the analyzer has all topologies from before `time` (nanoseconds since 1970). It
    /// refuses a record with an earlier stamp and an unknown topology. It accepts a later record
    /// with an unknown topology, because this topology may still come.
    pub fn know(&mut self, time: u64) {
        self.rules.known = self.rules.known.max(time);
    }

    /// Sets the counts of doubles and of refused records to 0 for a new account. Records with
    /// stamps before `time`, in nanoseconds since 1970, are not counted from now on.
    pub fn count_from(&mut self, time: u64) {
        self.rules.since = time;
        self.rules.doubles.fill(0);
        self.rules.refused.fill(0);
    }

    /// Takes a batch that came at `now`, in nanoseconds since 1970.
    ///
    /// # Errors
    /// Fails if the batch is refused. A counter counts the refusal.
    pub fn take(&mut self, batch: &Batch<'_>, now: u64) -> Result<(), Refusal> {
        let taken = self.admit(batch, now);
        self.timeline
            .begin(self.time(now).saturating_sub(self.settings.hold));
        match taken {
            Ok(number) => self.hold(batch, number),
            Err(Refusal::Again) => {}
            Err(Refusal::Full) => self.rules.counters.crowded_batches += 1,
            Err(Refusal::Cluster | Refusal::Old) => self.rules.counters.refused_batches += 1,
        }
        taken.map(|_| ())
    }

    /// The analyzer's number for the batch's node, if the batch is accepted.
    fn admit(&mut self, batch: &Batch<'_>, now: u64) -> Result<u16, Refusal> {
        let head = &batch.head;
        if head.cluster != self.settings.cluster {
            return Err(Refusal::Cluster);
        }
        let number = self.number(head.node, now)?;
        let key = (head.node, head.boot, head.session);
        if !self.streams.contains_key(&key) {
            self.make_room(now)?;
        }
        let from_begin = now >= self.settings.begin.saturating_add(YOUNG);
        let stream = self
            .streams
            .entry(key)
            .or_insert_with(|| Stream::new(batch, from_begin));
        stream.note(batch, now)?;
        let newest = batch.records().map(|record| record.stamp).max();
        let newest = newest.unwrap_or(batch.stamp());
        stream.ahead = (newest as i64).wrapping_sub(now as i64);
        Ok(number)
    }

    fn number(&mut self, node: NodeId, now: u64) -> Result<u16, Refusal> {
        if let Some(number) = self.numbers.get(&node) {
            self.nodes[usize::from(*number)].1 = now;
            return Ok(*number);
        }
        let at = if self.nodes.len() < MOST_NODES {
            self.nodes.push((node, now));
            self.nodes.len() - 1
        } else {
            self.forget_node(now)?
        };
        let number = u16::try_from(at).map_err(|_| Refusal::Full)?;
        self.nodes[at] = (node, now);
        self.numbers.insert(node, number);
        Ok(number)
    }

    /// Forgets the node that has been silent for the longest time, and returns the node's number.
    /// Fails if doubles of the node's packets can still come.
    fn forget_node(&mut self, now: u64) -> Result<usize, Refusal> {
        let oldest = self.nodes.iter().enumerate();
        let oldest = oldest.min_by_key(|(_, (_, heard))| *heard);
        let silent = |heard: u64| heard.saturating_add(LATE) < now;
        let oldest = oldest.filter(|(_, (_, heard))| silent(*heard));
        let (at, node) = oldest
            .map(|(at, (node, _))| (at, *node))
            .ok_or(Refusal::Full)?;
        self.numbers.remove(&node);
        self.rules.topologies.forget(node);
        let lost = &mut self.rules.counters.export_lost;
        self.streams.retain(|(of, _, _), stream| {
            if *of == node {
                *lost += stream.missing();
            }
            *of != node
        });
        Ok(at)
    }

    /// If there are [`SESSIONS`] sessions, ends the session that has been silent the longest. Adds
    /// the counts of the ended session to another session of the same node.
    fn make_room(&mut self, now: u64) -> Result<(), Refusal> {
        if self.streams.len() < SESSIONS {
            return Ok(());
        }
        let oldest = self.streams.iter().min_by_key(|(_, stream)| stream.heard);
        let silent = |heard: u64| heard.saturating_add(SILENT) < now;
        let oldest = oldest.filter(|(_, stream)| silent(stream.heard));
        let key = oldest.map(|(key, _)| *key).ok_or(Refusal::Full)?;
        let Some(stream) = self.streams.remove(&key) else {
            return Ok(());
        };
        self.rules.counters.export_lost += stream.missing();
        let of_boot = (key.0, key.1, 0)..=(key.0, key.1, u64::MAX);
        if let Some((_, other)) = self.streams.range_mut(of_boot).next() {
            other.inherit(&stream);
        }
        Ok(())
    }

    fn hold(&mut self, batch: &Batch<'_>, number: u16) {
        let (node, revision) = (batch.head.node, batch.origin.revision);
        let sender = BatchFields {
            revision: revision.0,
            node: number,
            link: batch.origin.link,
        };
        let is_newest = self
            .rules
            .topologies
            .newest()
            .is_none_or(|newest| newest == revision);
        let counters = &mut self.rules.counters;
        let session = (node, batch.head.boot, batch.head.session);
        let Some(stream) = self.streams.get_mut(&session) else {
            return;
        };
        let mut first = batch.stamp();
        counters.batches += 1;
        counters.received += u64::from(batch.len());
        for record in batch.records() {
            let put = self.timeline.hold(sender, &record);
            counters.late += u64::from(put.late);
            counters.ahead += u64::from(put.ahead);
            stream.until = stream.until.max(put.until);
            stream.captured[usize::from(record.bucket)] += 1;
            first = first.min(record.stamp);
            // If the record's topology is not the newest one, the record's bucket may be moving.
            if record.marked || !is_newest {
                let moved = &mut self.rules.moved[usize::from(record.bucket)];
                moved.0 = moved.0.min(record.stamp.saturating_sub(self.settings.skew));
                moved.1 = moved.1.max(record.stamp.saturating_add(self.settings.skew));
            }
        }
        self.rules.topologies.note(node, revision, first);
    }

    /// Delivers all records that have waited long enough, the oldest first. `now` is in nanoseconds
    /// since 1970, and is from the same clock as for [`take`](Self::take).
    pub fn release(&mut self, now: u64, mut give: impl FnMut(&Delivered<'_>)) {
        let until = self.time(now).saturating_sub(self.settings.hold);
        let (rules, nodes) = (&mut self.rules, &self.nodes);
        let mut judge = |held: &WaitingRecord, captured: &[u8]| {
            rules.judge(held, nodes[usize::from(held.node)].0, captured, &mut give);
        };
        self.timeline.release(until, &mut judge);
        let mut hurried = 0;
        while self.timeline.bytes > self.settings.most_held {
            self.timeline.release_one(&mut judge);
            hurried += 1;
        }
        rules.counters.hurried += hurried;
        rules.forget(self.timeline.due());
    }

    /// How many slots of time (each about 1 ms) have been delivered. The number never falls.
    pub fn given(&self) -> u64 {
        self.timeline.given
    }

    /// When [`given`](Self::given) reaches this value, all records that the analyzer has received
    /// in the batch's session are delivered or refused. The value for a session never falls.
    pub fn due(&self, batch: &Head) -> u64 {
        let session = (batch.node, batch.boot, batch.session);
        let stream = self.streams.get(&session);
        stream.map_or(0, |stream| stream.until)
    }

    /// Delivers all records, because the analyzer ends.
    pub fn flush(&mut self, mut give: impl FnMut(&Delivered<'_>)) {
        let (rules, nodes) = (&mut self.rules, &self.nodes);
        let mut judge = |held: &WaitingRecord, captured: &[u8]| {
            rules.judge(held, nodes[usize::from(held.node)].0, captured, &mut give);
        };
        while self.timeline.bytes > 0 {
            self.timeline.release_one(&mut judge);
        }
    }

    /// The cluster's time: the median of the nodes' time stamps. One wrong clock has no effect.
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

    /// Whether too many bytes wait. If so, call [`release`](Self::release) at once.
    pub fn is_full(&self) -> bool {
        self.timeline.bytes > self.settings.most_held
    }

    /// The newest revision that records name, if the analyzer has no topology that is as new.
    pub fn unheard(&self) -> Option<Revision> {
        self.rules.topologies.unheard()
    }

    /// The analyzer's counters.
    pub fn counters(&self) -> Counters {
        let mut counters = self.rules.counters;
        counters.export_lost += self.streams.values().map(Stream::missing).sum::<u64>();
        counters
    }

    /// How many doubles were removed, by bucket.
    pub fn doubles(&self) -> &Counts {
        &self.rules.doubles
    }

    /// Records refused because of their topology (fenced, foreign, unknown), by bucket.
    pub fn refused(&self) -> &Counts {
        &self.rules.refused
    }
}

impl Rules {
    /// Delivers a record, or refuses it and counts why.
    fn judge(
        &mut self,
        held: &WaitingRecord,
        node: NodeId,
        captured: &[u8],
        give: &mut impl FnMut(&Delivered<'_>),
    ) {
        let bucket = usize::from(held.bucket);
        let claim = RecordOrigin {
            node,
            revision: Revision(held.revision),
            bucket,
            stamp: held.stamp,
        };
        let check = self.topologies.check(&claim, self.skew);
        let counts = held.stamp >= self.since;
        let refused = match check {
            OwnershipCheck::Owner | OwnershipCheck::Shared => None,
            OwnershipCheck::Unknown if held.stamp.saturating_add(self.skew) >= self.known => None,
            OwnershipCheck::Unknown => Some(&mut self.counters.unknown),
            OwnershipCheck::Fenced => Some(&mut self.counters.fenced),
            OwnershipCheck::Foreign => Some(&mut self.counters.foreign),
        };
        if let Some(refused) = refused {
            *refused += 1;
            self.refused[bucket] += u64::from(counts);
            return;
        }
        let (from, until) = self.moved[bucket];
        let is_shared = check != OwnershipCheck::Owner
            || held.marked
            || self.topologies.is_new(&claim, self.skew);
        if is_shared || (from <= held.stamp && held.stamp <= until) {
            let packet = (held.bucket, held.wire_length, captured);
            if self.deduplicator.is_double(held.stamp, held.node, packet) {
                self.counters.doubles += 1;
                self.doubles[bucket] += u64::from(counts);
                return;
            }
            let unchecked = held.late && self.deduplicator.has_forgotten(held.stamp);
            self.counters.unchecked += u64::from(unchecked);
        }
        self.counters.delivered += 1;
        give(&Delivered {
            node,
            link: held.link,
            revision: Revision(held.revision),
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

    /// Forgets packets and moves of buckets that are needed only for records from before `time`.
    fn forget(&mut self, time: u64) {
        self.deduplicator.forget(time);
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
