//! With round robin, finds the nodes that may be out of turn: they assign packets to other buckets
//! than the other nodes do.

use fanpcap_buckets::layout::BUCKETS;

use super::counter_run::CounterRun;
use super::ledger::Ledger;
use super::report::Summary;
use super::span::Span;
use super::verdict::Verdict;

/// A node that missed a packet is out of turn until the next topology update, at most for this many
/// nanoseconds. An update comes every 8 s, but not in a union, and a port may lose an update.
const TURN: u64 = 20_000_000_000;

/// A node that has seen no beacon for this many nanoseconds may also have missed a topology update.
const BEACONS: u64 = 2_000_000_000;

impl Ledger {
    /// If `in_turn` is set, nodes capture in turn (round robin) from now on.
    pub fn set_in_turn(&mut self, in_turn: bool) {
        self.in_turn |= in_turn;
    }

    /// Whether the node of `run` may have been out of turn since the bucket's interval began.
    pub(super) fn is_out_of_turn(&self, run: &CounterRun, bucket: usize) -> bool {
        let since = self.intervals[bucket].since;
        let lacked = run.lacked.filter(|at| at.saturating_add(TURN) >= since);
        self.in_turn && lacked.is_some()
    }

    /// Notes which nodes may have missed a packet or a topology update. A few missed packets are
    /// found only after the traffic has stopped, because until then these packets may be on their
    /// way to the node.
    pub(super) fn note_turns(&mut self, offered: &[Span], rests: &[bool]) {
        if !self.in_turn {
            return;
        }
        let lacks = |run: &CounterRun| {
            let around = run.around(self.time, self.settings.skew);
            let has_all = |bucket: usize| match run.offered(&around, bucket) {
                Some(seen) if rests[bucket] => seen == offered[bucket],
                Some(seen) => seen.most >= offered[bucket].least,
                // A run that was never an observer is checked later, when it becomes an observer.
                None => !run.booked,
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
