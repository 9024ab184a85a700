//! Judges ports by their nodes' counts, as all ports of one link should see the same packets.

use fanpcap_buckets::layout::BUCKETS;

use super::counter_run::{CounterRun, ReportsAround};
use super::span::Span;
use super::verdict::Verdict;

/// A port is different if its node exceeds the median in some buckets, and is below it in others.
/// Each of the two sums of differences is at least this many millionths of all packets.
const DIFFERENT: i64 = 2_000;

/// A port is surplus if its node sees at least this many millionths of all packets more than the
/// median. The limit allows for a median that lacks packets because two of three ports lose some.
const SURPLUS: i64 = 10_000;

/// Nodes are not compared if they saw fewer packets than this in total.
const FEW: i64 = 200;

/// Returns each run's verdict, by the packets that the run saw between the times `from` and
/// `until`. `None` if the runs saw too few packets.
pub(super) fn judge(
    runs: &[&CounterRun],
    from: &[ReportsAround<'_>],
    until: &[ReportsAround<'_>],
) -> Vec<Option<Verdict>> {
    let seen =
        |run: usize, bucket| (until[run].seen(bucket) - from[run].seen(bucket)).not_negative();
    let sees = |run: &usize| (0..BUCKETS).any(|bucket| seen(*run, bucket).most > 0);
    // A port without packets is not compared with the others.
    let seeing: Vec<usize> = (0..runs.len()).filter(sees).collect();
    let mut sums = vec![Sums::default(); runs.len()];
    let mut total = 0;
    for bucket in 0..BUCKETS {
        let seen: Vec<Span> = seeing.iter().map(|run| seen(*run, bucket)).collect();
        let Some(median) = median(&seen) else {
            break;
        };
        total += median.least;
        for (run, seen) in seeing.iter().zip(&seen) {
            let sum = &mut sums[*run];
            sum.most += seen.most;
            sum.beyond += (seen.least - median.most).max(0);
            sum.lacks += (median.least - seen.most).max(0);
        }
    }
    // If only one node is near the median, it is unknown whether other nodes see too many packets.
    let is_like = |run: &&usize| sums[**run].is_like_median(total);
    let agree = seeing.iter().filter(is_like).count();
    let verdict = |(run, sum): (&&CounterRun, &Sums)| {
        // A port that was blind is sound if its node sees beacons again.
        let gives_beacons = run.last().summary.beacon.sequence > 0;
        if lacks_beacons(run, runs) {
            Some(Verdict::Blind)
        } else if total >= FEW {
            Some(sum.verdict(total, [seeing.len(), agree]))
        } else {
            (run.verdict == Verdict::Blind && gives_beacons).then_some(Verdict::Sound)
        }
    };
    runs.iter().zip(&sums).map(verdict).collect()
}

/// Whether the last report of `run` lacks three beacons that another node had reported three
/// seconds earlier. `false` if `run` has no report from that time. Fewer beacons may be lost or
/// late. Without the three seconds, the greater number of the first beacon after a pause would look
/// like lost beacons.
fn lacks_beacons(run: &CounterRun, runs: &[&CounterRun]) -> bool {
    let last = &run.last().summary;
    let before = last.stamp.saturating_sub(BEACONS);
    let is_heard = |other: &&CounterRun| {
        let mut reports = other.reports.iter();
        let old = reports.rfind(|report| report.summary.stamp <= before);
        old.is_some_and(|old| old.summary.beacon.sequence >= last.beacon.sequence + 3)
    };
    run.reports[0].summary.stamp <= before && runs.iter().any(is_heard)
}

/// The time in which three beacons are sent, in nanoseconds.
const BEACONS: u64 = 3_000_000_000;

/// Sums over all buckets of a run's packets, and of their differences from the median.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    most: i64,
    beyond: i64,
    lacks: i64,
}

impl Sums {
    fn is_like_median(self, total: i64) -> bool {
        parts(self.beyond.saturating_add(self.lacks), total) < SURPLUS
    }

    /// The verdict, if `seeing` nodes see traffic, and `agree` of them are near the median.
    fn verdict(self, total: i64, [seeing, agree]: [usize; 2]) -> Verdict {
        let (beyond, lacks) = (parts(self.beyond, total), parts(self.lacks, total));
        if self.most == 0 {
            Verdict::Blind
        } else if beyond >= DIFFERENT && lacks >= DIFFERENT && seeing > 2 {
            Verdict::Different
        } else if beyond >= SURPLUS && agree > 1 {
            Verdict::Surplus
        } else {
            Verdict::Sound
        }
    }
}

/// `count` in millionths of `total`.
fn parts(count: i64, total: i64) -> i64 {
    count.saturating_mul(1_000_000) / total.max(1)
}

/// The median; if two numbers are in the middle, the greater one, because ports may lose packets.
fn median(seen: &[Span]) -> Option<Span> {
    if seen.is_empty() {
        return None;
    }
    let middle = |mut numbers: Vec<i64>| {
        let at = numbers.len() / 2;
        *numbers.select_nth_unstable(at).1
    };
    Some(Span {
        least: middle(seen.iter().map(|span| span.least).collect()),
        most: middle(seen.iter().map(|span| span.most).collect()),
    })
}
