//! Which nodes may be out of turn, if packets are captured in turn. Such a node assigns packets to
//! other buckets than the other nodes do.

use fanpcap_buckets::layout::BUCKETS;

use super::counter_run::CounterRun;
use super::ledger::Ledger;
use super::report::Summary;
use super::span::Span;
use super::verdict::Verdict;

/// A node that missed a packet counts turns wrongly for at most this time, in nanoseconds. Updates
/// come in the stream every 8 s, a port may lose an update, and no update comes in a union.
const TURN: u64 = 20_000_000_000;

/// A node that sees no beacon for this time, in nanoseconds, missed one, and perhaps an update.
const BEACONS: u64 = 2_000_000_000;

impl Ledger {
    /// Sets whether nodes capture in turn. A node that missed a packet is out of turn for a while.
    pub fn set_in_turn(&mut self, in_turn: bool) {
        self.in_turn |= in_turn;
    }

    /// Whether a run's node may have been out of turn in a bucket's interval.
    pub(super) fn is_out_of_turn(&self, run: &CounterRun, bucket: usize) -> bool {
        let since = self.intervals[bucket].since;
        let lacked = run.lacked.filter(|at| at.saturating_add(TURN) >= since);
        self.in_turn && lacked.is_some()
    }

    /// Notes the runs whose node may have missed a packet or a topology update. While packets come,
    /// the counts do not show whether a few packets are lacking. Without traffic, they do.
    pub(super) fn note_turns(&mut self, resting: &[Option<Span>]) {
        if !self.in_turn {
            return;
        }
        let observers = self.observers(self.time);
        let offered: Vec<Span> = (0..BUCKETS)
            .map(|bucket| self.offered_now(&observers, bucket))
            .collect();
        let lacks = |run: &CounterRun| {
            let around = run.around(self.time, self.settings.skew);
            let has_all = |bucket: usize| match (run.offered(&around, bucket), resting[bucket]) {
                (Some(seen), Some(offered)) => seen == offered,
                (Some(seen), None) => seen.most >= offered[bucket].least,
                // The packets that a new run lacks are found when its node becomes an observer.
                (None, _) => !run.booked,
            };
            let Summary { stamp, beacon, .. } = run.last().summary;
            let has_beacons = stamp.saturating_sub(beacon.seen) <= BEACONS;
            let is_sound = run.verdict == Verdict::Sound;
            !(run.is_live() && is_sound && has_beacons && (0..BUCKETS).all(has_all))
        };
        let lacking: Vec<bool> = self.runs.iter().map(lacks).collect();
        let runs = self.runs.iter_mut().zip(lacking);
        for (run, _) in runs.filter(|(_, lacks)| *lacks) {
            run.lacked = Some(self.time);
        }
    }
}
