//! Compares the loss account with the packets of a run. The nodes of the run report to a ledger
//! once a second, and the ledger reads the topology that a coordinator knows.

use std::collections::BTreeSet;

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_cluster::loss_account::{
    Account, Beacon, Counts, Ledger, LedgerSettings, Report, Summary, Verdict,
};
use fanpcap_cluster::{Revision, Topology};
use fanpcap_select::Claim;

use crate::machines::{Machine, Segment};
use crate::proof::Broken;
use crate::run_plan::END;
use crate::store::Time;

const SECOND: Time = 1_000_000;

/// The time between two packets of a bucket.
const STEP: Time = SECOND / 20;

/// In each period, traffic rests after `BUSY`.
const PERIOD: Time = 10 * SECOND;
const BUSY: Time = 7 * SECOND;

/// How long traffic rests at the end, so that the ledger gives up all dead nodes.
const REST: Time = 150 * SECOND;

/// After this time without reports, a node counts as dead.
const OFFLINE: Time = 15 * SECOND;

/// Nanoseconds since 1970.
fn clock(time: Time) -> u64 {
    (1000 * SECOND + time) * 1000
}

/// A node's counters.
struct Counters {
    boot: u64,
    since: Time,
    seen: Box<Counts>,
    captured: Box<Counts>,
    /// When the node last reported; `None` while it counts as dead.
    reported: Option<Time>,
}

/// What became of a bucket's packets.
#[derive(Clone, Copy, Default)]
struct Truth {
    doubles: i64,
    lost: i64,
}

/// A run's packets, and the ledger of the nodes' reports.
struct Accounted<'a> {
    machines: &'a [Machine],
    counters: Vec<Option<Counters>>,
    buckets: Vec<usize>,
    truth: Vec<Truth>,
    ledger: Ledger,
}

/// Checks that the account's spans contain the doubled and the lost packets. Returns false if two
/// of three ports missed the same packets, so that the third port seemed to see packets twice: the
/// ledger then names that port, and does not use its counts (decision 31).
/// `read` returns the topology that the analyzer reads in a second.
pub(crate) fn hold<'a>(
    machines: &[Machine],
    read: impl Fn(Time) -> Option<(Revision, &'a Topology)>,
) -> Result<bool, Broken> {
    let settings = LedgerSettings {
        skew: clock(SECOND / 5) - clock(0),
        begin: clock(0),
        analyzed: false,
    };
    let buckets = buckets(machines);
    let mut accounted = Accounted {
        machines,
        counters: machines.iter().map(|_| None).collect(),
        truth: vec![Truth::default(); buckets.len()],
        buckets,
        ledger: Ledger::new(settings),
    };
    for step in 1..(END + REST) / STEP {
        let now = step * STEP;
        accounted.begin(now);
        if now < END && now % PERIOD < BUSY {
            accounted.send(now);
        }
        accounted.report(now);
        if now % SECOND == 0 {
            if !accounted.is_judged() {
                return Ok(false);
            }
            if let Some((revision, topology)) = read(now) {
                accounted.ledger.add_topology(revision, topology.clone());
            }
            accounted.ledger.settle();
        }
    }
    accounted.compare(&accounted.ledger.account())?;
    Ok(true)
}

/// One bucket of each set of buckets that the same nodes captured at all times.
fn buckets(machines: &[Machine]) -> Vec<usize> {
    let mut known = BTreeSet::new();
    let is_new = |bucket: &usize| {
        let segments = machines.iter().flat_map(|machine| &machine.segments);
        let claims = segments.map(|segment| takes(segment, *bucket));
        known.insert(claims.collect::<Vec<_>>())
    };
    (0..BUCKETS).filter(is_new).collect()
}

fn takes(segment: &Segment, bucket: usize) -> bool {
    let assignment = segment.assignment.as_ref();
    assignment.is_some_and(|it| it.claims.of(bucket) != Claim::Elsewhere)
}

/// The segment of a machine that captures at a time.
fn capturing(machine: &Machine, now: Time) -> Option<&Segment> {
    let mut segments = machine.segments.iter();
    let segment = segments.rfind(|segment| segment.from <= now);
    segment.filter(|segment| segment.assignment.is_some())
}

impl Accounted<'_> {
    /// Sets the counters of machines that have booted to 0.
    fn begin(&mut self, now: Time) {
        for (machine, counters) in self.machines.iter().zip(&mut self.counters) {
            let Some(segment) = capturing(machine, now) else {
                continue;
            };
            if counters.as_ref().is_none_or(|it| it.boot != segment.boot) {
                *counters = Some(Counters {
                    boot: segment.boot,
                    since: now,
                    seen: Box::new([0; BUCKETS]),
                    captured: Box::new([0; BUCKETS]),
                    reported: None,
                });
            }
        }
    }

    /// Mirrors a packet of each bucket to all ports.
    fn send(&mut self, now: Time) {
        for (bucket, truth) in self.buckets.iter().zip(&mut self.truth) {
            let (mut seen, mut taken) = (0, 0);
            for (machine, counters) in self.machines.iter().zip(&mut self.counters) {
                let Some((segment, counters)) = capturing(machine, now).zip(counters.as_mut())
                else {
                    continue;
                };
                seen += 1;
                counters.seen[*bucket] += 1;
                if takes(segment, *bucket) {
                    taken += 1;
                    counters.captured[*bucket] += 1;
                }
            }
            // A packet that no port delivers is in no count.
            truth.lost += i64::from(seen > 0 && taken == 0);
            truth.doubles += (taken - 1).max(0);
        }
    }

    /// Whether the ledger uses all nodes' counts. Each port that works sees each packet once.
    fn is_judged(&self) -> bool {
        let verdicts = self.machines.iter().map(|it| self.ledger.verdict(it.id));
        verdicts.flatten().all(Verdict::is_believed)
    }

    fn report(&mut self, now: Time) {
        for (at, machine) in (1..).zip(self.machines) {
            let Some(counters) = self.counters[at - 1].as_mut() else {
                continue;
            };
            let due = (now / STEP + at as u64 * 7) % (SECOND / STEP) == 0;
            let segment = capturing(machine, now);
            if let Some(assignment) = segment
                .and_then(|it| it.assignment.as_ref())
                .filter(|_| due)
            {
                let summary = Summary {
                    node: machine.id,
                    boot: counters.boot,
                    since: clock(counters.since),
                    stamp: clock(now),
                    revision: assignment.revision,
                    ring: 0,
                    beacon: Beacon::default(),
                };
                let report = Report {
                    summary,
                    seen: counters.seen.clone(),
                    captured: counters.captured.clone(),
                };
                self.ledger.take(report).expect("counts that only grow");
                counters.reported = Some(now);
            } else if counters.reported.is_some_and(|it| it + OFFLINE < now) {
                self.ledger.end(machine.id, clock(now), None);
                counters.reported = None;
            }
        }
    }

    fn compare(&self, account: &Account) -> Result<(), Broken> {
        for (bucket, truth) in self.buckets.iter().zip(&self.truth) {
            let row = account.buckets[*bucket];
            if !row.doubles.has(truth.doubles) || !row.lost.has(truth.lost) {
                let Truth { doubles, lost } = truth;
                return Err(Broken::Account(format!(
                    "bucket {bucket}: {row:?}, but {doubles} doubles and {lost} lost"
                )));
            }
        }
        Ok(())
    }
}
