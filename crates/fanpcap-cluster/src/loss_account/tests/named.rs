//! Verdicts on ports that are wrong, blind or lossy.

use fanpcap_buckets::layout::BUCKETS;

use super::model::SECOND;
use crate::identity::{NodeId, Revision};
use crate::loss_account::{Beacon, Ledger, LedgerSettings, Report, ReportError, Summary, Verdict};

pub(super) const BEGIN: u64 = 1_000 * SECOND;

pub(super) fn ledger() -> Ledger {
    let skew = SECOND / 5;
    Ledger::new(LedgerSettings {
        skew,
        begin: BEGIN,
        analyzed: true,
    })
}

/// A report of node `node` after `seconds`. The node saw `seen` packets of each bucket.
pub(super) fn report(node: u32, seconds: u64, seen: impl Fn(usize) -> u64) -> Report {
    let summary = Summary {
        node: NodeId(node),
        boot: 1,
        since: BEGIN,
        stamp: BEGIN + seconds * SECOND,
        revision: Revision(1),
        ring: 0,
        beacon: Beacon {
            sequence: seconds,
            seen: 0,
        },
    };
    let captured = |bucket| {
        if bucket % 3 == node as usize {
            seen(bucket)
        } else {
            0
        }
    };
    Report {
        summary,
        seen: Box::new(std::array::from_fn(&seen)),
        captured: Box::new(std::array::from_fn(captured)),
    }
}

/// The ledger after one second without traffic, eight seconds with traffic, and one more second
/// without traffic. In each second with traffic, three nodes saw `seen` packets of each bucket.
fn after(seen: impl Fn(u32, usize) -> u64) -> Ledger {
    let mut ledger = ledger();
    for seconds in 0..11u64 {
        let times = seconds.saturating_sub(1).min(8);
        for node in 0..3 {
            let report = report(node, seconds, |bucket| times * seen(node, bucket));
            ledger.take(report).unwrap();
        }
        ledger.settle();
    }
    ledger
}

fn verdicts(ledger: &Ledger) -> Vec<Verdict> {
    ledger
        .account()
        .nodes
        .iter()
        .map(|node| node.verdict)
        .collect()
}

#[test]
fn nodes_that_see_the_same_are_sound() {
    let ledger = after(|_, bucket| bucket as u64 % 7);
    assert_eq!(verdicts(&ledger), [Verdict::Sound; 3]);
    let total = ledger.account().total;
    assert!(total.lost.is_exact());
    assert_eq!(total.lost.least, 0);
}

#[test]
fn a_port_with_a_thousandth_of_loss_is_named_and_counted() {
    let ledger = after(|node, bucket| 1000 - u64::from(node == 1 && bucket % 3 == 1));
    let verdicts = verdicts(&ledger);
    assert!(
        matches!(verdicts[1], Verdict::Lossy(300..340)),
        "{verdicts:?}"
    );
    assert_eq!([verdicts[0], verdicts[2]], [Verdict::Sound; 2]);
    let account = ledger.account();
    let lost = 8 * i64::try_from((0..BUCKETS).filter(|bucket| bucket % 3 == 1).count()).unwrap();
    assert_eq!(
        (account.total.lost.least, account.total.lost.most),
        (lost, lost)
    );
    assert_eq!(
        account
            .nodes
            .iter()
            .map(|node| node.mirror)
            .collect::<Vec<_>>(),
        [0, lost, 0]
    );
}

#[test]
fn a_blind_port_is_named() {
    let ledger = after(|node, _| if node == 2 { 0 } else { 5 });
    assert_eq!(
        verdicts(&ledger),
        [Verdict::Sound, Verdict::Sound, Verdict::Blind]
    );
    let lost = ledger.account().total.lost;
    let blinds = (0..BUCKETS).filter(|bucket| bucket % 3 == 2).count();
    assert_eq!(lost.least, 8 * 5 * i64::try_from(blinds).unwrap());
}

#[test]
fn a_sound_port_beside_two_that_lose_is_believed() {
    // Port 1 is lossy. Port 2 delivers nothing, or less than port 1.
    for least in [0, 40] {
        let ledger = after(|node, _| [100, 75, least][node as usize]);
        assert_eq!(ledger.verdict(NodeId(0)), Some(Verdict::Sound), "{least}");
        let is_lossy = matches!(ledger.verdict(NodeId(1)), Some(Verdict::Lossy(_)));
        assert!(is_lossy, "{least}");
        let is_blind = ledger.verdict(NodeId(2)) == Some(Verdict::Blind);
        assert_eq!(is_blind, least == 0);
        let offered = ledger.account().total.offered;
        assert_eq!(offered.least, 800 * i64::try_from(BUCKETS).unwrap());
    }
}

#[test]
fn a_wrong_mirror_is_named_and_not_believed() {
    let ledger = after(|node, bucket| {
        let bucket = if node == 0 {
            BUCKETS - 1 - bucket
        } else {
            bucket
        };
        bucket as u64 / 10
    });
    assert_eq!(
        verdicts(&ledger),
        [Verdict::Different, Verdict::Sound, Verdict::Sound]
    );
    let offered: u64 = (0..BUCKETS).map(|bucket| 8 * (bucket as u64 / 10)).sum();
    assert_eq!(
        ledger.account().total.offered.least,
        i64::try_from(offered).unwrap()
    );
}

#[test]
fn a_node_that_sees_packets_twice_is_named_and_not_believed() {
    let ledger = after(|node, _| if node == 1 { 20 } else { 10 });
    assert_eq!(
        verdicts(&ledger),
        [Verdict::Sound, Verdict::Surplus, Verdict::Sound]
    );
    let offered = ledger.account().total.offered;
    assert_eq!(offered.least, 8 * 10 * i64::try_from(BUCKETS).unwrap());
}

#[test]
fn a_node_whose_beacons_stand_still_is_blind() {
    // With a rate of 0, there is no traffic.
    for rate in [1, 0] {
        let mut ledger = ledger();
        let mut verdicts = Vec::new();
        for seconds in 0..12 {
            for node in 0..3 {
                let mut report = report(node, seconds, |_| rate * seconds);
                if node == 2 && seconds < 9 {
                    report.summary.beacon.sequence = 1;
                }
                ledger.take(report).unwrap();
            }
            ledger.settle();
            verdicts.push(ledger.verdict(NodeId(2)).unwrap());
        }
        let blind = verdicts.iter().position(|it| *it == Verdict::Blind);
        assert_eq!(blind, Some(7), "{verdicts:?}");
        assert_eq!(verdicts[8], Verdict::Blind);
        assert_eq!(verdicts[11], Verdict::Sound);
        assert_eq!(ledger.verdict(NodeId(1)), Some(Verdict::Sound));
    }
}

#[test]
fn the_first_beacons_and_those_after_a_pause_make_nobody_blind() {
    let mut ledger = ledger();
    for seconds in 0..40 {
        for node in 0..3 {
            let mut report = report(node, seconds, |_| 0);
            // Node 0 reports right after each beacon, node 2 right before each beacon. Node 2 loses
            // beacon 1014.
            let late = u64::from(node == 2);
            let beacon = match seconds - late.min(seconds) {
                0..5 => 0,
                beacon @ (5..15 | 30..) => 1000 + beacon - late * u64::from(beacon == 14),
                _ => 1014 - late,
            };
            report.summary.beacon = Beacon {
                sequence: beacon,
                seen: (beacon + 1) * SECOND + u64::from(node) * 1000,
            };
            ledger.take(report).unwrap();
            ledger.settle();
            for node in 0..=node {
                assert_eq!(
                    ledger.verdict(NodeId(node)),
                    Some(Verdict::Sound),
                    "{seconds}"
                );
            }
        }
        let apart = ledger.account().apart;
        let known = match seconds {
            0..=4 => None,
            5 => Some(1000),
            _ => Some(2000),
        };
        assert_eq!(apart, known, "{seconds}");
    }
}

#[test]
fn beacons_tell_how_wide_a_span_is() {
    // Packets come all the time, and nodes report four times a second.
    let width = |beacons: bool, apart: u64| {
        let mut ledger = ledger();
        for quarter in 0..80 {
            for node in 0..2 {
                let mut report = report(node, 0, |_| quarter);
                report.summary.stamp += quarter * SECOND / 4;
                let (sequence, seen) = (1 + quarter / 4, u64::from(node) * apart);
                report.summary.beacon = match beacons {
                    true => Beacon { sequence, seen },
                    false => Beacon::default(),
                };
                ledger.take(report).unwrap();
            }
            ledger.settle();
        }
        let offered = ledger.account().total.offered;
        offered.most - offered.least
    };
    let buckets = i64::try_from(BUCKETS).unwrap();
    assert_eq!(width(false, 0), 2 * buckets, "200 ms before and after");
    assert_eq!(width(true, 1_000_000), width(true, 0));
    assert!(width(true, 0) <= width(false, 0));
    assert!(
        width(true, SECOND) >= 8 * buckets,
        "clocks differ by a second"
    );
}

#[test]
fn reports_that_can_not_be_are_refused() {
    let mut ledger = ledger();
    ledger.take(report(0, 2, |_| 10)).unwrap();
    assert_eq!(ledger.take(report(0, 2, |_| 10)), Err(ReportError::Old));
    assert_eq!(ledger.take(report(0, 3, |_| 9)), Err(ReportError::Counts));
    let mut more = report(0, 3, |_| 10);
    more.captured[1] = 11;
    assert_eq!(ledger.take(more), Err(ReportError::Counts));
    let mut fewer = report(0, 3, |_| 10);
    fewer.captured[0] = 9;
    assert_eq!(ledger.take(fewer), Err(ReportError::Counts));
}

/// Three nodes see 9 packets a second in each bucket. The last node is silent for `silence`
/// seconds, and counts as dead at the end of this time. After the silence, the last node reports
/// again, and its counters include the silent time.
fn after_a_silence(silence: u64) -> (i64, i64, i64) {
    let mut ledger = ledger();
    let seen = |seconds: u64| move |_| 9 * seconds.min(60);
    for second in 1..70 {
        let is_silent = second > 10 && second <= 10 + silence;
        for node in 0..3 {
            if node < 2 || !is_silent {
                ledger.take(report(node, second, seen(second))).unwrap();
            }
        }
        if is_silent && second == 9 + silence {
            ledger.end(NodeId(2), BEGIN + second * SECOND, None);
        }
        ledger.settle();
    }
    let total = ledger.account().total;
    assert!(
        total.lost.is_exact() && total.captured.is_exact(),
        "{total:?}"
    );
    (total.offered.least, total.captured.least, total.lost.least)
}

#[test]
fn a_node_that_was_silent_and_goes_on_is_counted_once() {
    let offered = 9 * 60 * i64::try_from(BUCKETS).unwrap();
    for silence in [2, 4, 30] {
        assert_eq!(after_a_silence(silence), (offered, offered, 0), "{silence}");
    }
}

#[test]
fn what_an_analyzer_refused_hides_no_loss() {
    // Node 0 is cut off, and captures bucket 1 too. The owner of bucket 1 loses every fifth packet.
    let mut ledger = ledger();
    for seconds in 0..7u64 {
        for node in 0..2 {
            let mut report = report(node, seconds, |bucket| {
                u64::from(bucket == 1) * 5 * seconds.min(3)
            });
            report.captured[1] = (5 - u64::from(node)) * seconds.min(3);
            ledger.take(report).unwrap();
        }
        ledger.settle();
    }
    ledger.set_refused(1, 15);
    let row = ledger.account().buckets[1];
    assert_eq!(row.offered.least, 15, "{row:?}");
    assert_eq!((row.refused.least, row.lost.least), (15, 3));
}
