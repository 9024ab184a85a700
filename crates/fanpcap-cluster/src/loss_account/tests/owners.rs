//! Topologies and reports that come late, or never, in distribution mode.

use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::BUCKETS;
use fanpcap_select::Selection;

use super::model::SECOND;
use super::named::{BEGIN, report};
use crate::identity::{NodeId, Revision};
use crate::loss_account::{BucketAccount, Ledger, LedgerSettings, Report, Span};
use crate::topology::{NodeEntry, Topology};

/// A ledger that begins at `BEGIN`.
pub(super) fn ledger() -> Ledger {
    Ledger::new(LedgerSettings {
        skew: SECOND / 5,
        begin: BEGIN,
        analyzed: false,
    })
}

/// Adds a topology of the nodes 0 to 2. Its epoch is the lower half of its revision. `owner` has
/// bucket 0; in a union, `new_owner` gets it. Node 2 has the other buckets.
pub(super) fn add(ledger: &mut Ledger, revision: u64, owner: u8, new_owner: Option<u8>) {
    add_of(ledger, &[0, 1, 2], revision, owner, new_owner);
}

/// The same, but the topology has these nodes.
pub(super) fn add_of(
    ledger: &mut Ledger,
    nodes: &[u8],
    revision: u64,
    owner: u8,
    new_owner: Option<u8>,
) {
    let owners = |first: u8| {
        let mut owners = Box::new([Some(Slot(2)); BUCKETS]);
        owners[0] = Some(Slot(first));
        owners
    };
    let entry = |node: u8| NodeEntry {
        slot: Slot(node),
        node: NodeId(node.into()),
        weight: 1,
    };
    let topology = Topology {
        epoch: revision & u64::from(u32::MAX),
        selection: Selection::default(),
        nodes: nodes.iter().copied().map(entry).collect(),
        owners: owners(owner),
        new_owners: new_owner.map(owners),
        analyzers: Vec::new(),
        filter: None,
    };
    ledger.add_topology(Revision(revision), topology);
}

/// Gives the ledger a report that a node made `tenths` of a second after `BEGIN`, when it followed
/// the topology `revision`. The node saw and captured these packets of bucket 0, and no others.
pub(super) fn take(ledger: &mut Ledger, node: u32, tenths: u64, revision: u64, counts: [u64; 2]) {
    take_since(ledger, (node, 0), tenths, revision, counts);
}

/// The same, but the node's counters were 0 at `since` tenths of a second after `BEGIN`.
pub(super) fn take_since(
    ledger: &mut Ledger,
    (node, since): (u32, u64),
    tenths: u64,
    revision: u64,
    counts: [u64; 2],
) {
    let mut report = of_bucket(node, tenths, revision, counts);
    report.summary.since += since * SECOND / 10;
    ledger.take(report).unwrap();
}

pub(super) fn of_bucket(
    node: u32,
    tenths: u64,
    revision: u64,
    [seen, captured]: [u64; 2],
) -> Report {
    let mut report = report(node, 0, |bucket| if bucket == 0 { seen } else { 0 });
    report.summary.stamp += tenths * SECOND / 10;
    report.summary.revision = Revision(revision);
    report.captured[0] = captured;
    report
}

/// The figures of bucket 0.
pub(super) fn row(ledger: &Ledger) -> BucketAccount {
    ledger.account().buckets[0]
}

/// Node 1 names an unknown topology in all its reports, which come five times a second. After some
/// seconds the ledger evaluates buckets without traffic all the same.
#[test]
fn a_node_whose_topology_stays_unknown_does_not_delay_the_account() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 0, None);
    for tenths in (0..200).step_by(2) {
        let came = 10 * u64::from(tenths >= 20);
        take(&mut ledger, 0, tenths, 1, [came, came]);
        take(&mut ledger, 1, tenths, 9, [came.saturating_sub(3), 0]);
        take(&mut ledger, 2, tenths, 1, [came, 0]);
        ledger.settle();
    }
    // The packets that a port did not deliver are counted when traffic has stopped.
    let mirror = ledger
        .account()
        .nodes
        .iter()
        .map(|node| node.mirror)
        .collect::<Vec<_>>();
    assert_eq!(mirror, [0, 3, 0]);
    hold(&ledger, 0, 0, 0);
}

/// How many packets came between `from` and `until` by the time `tenths`, if one came each tenth.
pub(super) fn came(tenths: u64, from: u64, until: u64) -> u64 {
    tenths.clamp(from, until) - from
}

/// Node 1 gets bucket 0, misses its last packets, and restarts before the ledger knows the topology
/// that gave it the bucket. So 3 packets are doubles, and 3 are lost.
#[test]
fn a_node_that_restarts_before_its_topology_is_known_may_have_missed_packets() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 0, None);
    for tenths in (0..200).step_by(5) {
        let revision = if tenths < 30 { 1 } else { 3 };
        let seen = came(tenths, 20, 35);
        take(
            &mut ledger,
            0,
            tenths,
            revision,
            [seen, came(tenths, 20, 32)],
        );
        match tenths {
            ..48 => {
                let counts = [came(tenths, 20, 32), came(tenths, 29, 32)];
                take(&mut ledger, 1, tenths, revision, counts);
            }
            _ => take_since(&mut ledger, (1, 48), tenths, revision, [0, 0]),
        }
        take(&mut ledger, 2, tenths, 1, [seen, 0]);
        if tenths == 65 {
            add(&mut ledger, 2, 0, Some(1));
            add(&mut ledger, 3, 1, None);
            let mut ends = ledger.runs.iter().filter_map(|run| run.end.as_ref());
            let owned = ends.next().map(|end| &end.owned);
            assert_eq!(owned.map(|it| it.iter().filter(|it| **it).count()), Some(1));
        }
        ledger.settle();
    }
    hold(&ledger, 3, 3, 15);
}

/// The ledger begins while two nodes capture the same packets, and the first reports come 0.9 s
/// apart. Then all packets are doubles until traffic stops.
#[test]
fn what_a_node_captured_before_its_first_report_may_be_doubles() {
    for late in 0..2 {
        let mut ledger = ledger();
        add(&mut ledger, 2, 0, Some(1));
        for tenths in 10..100 {
            let packets = 100 + came(tenths, 10, 19);
            for node in 0..3 {
                let begin = if node == late { 19 } else { 10 };
                if tenths >= begin && (tenths - begin) % 10 == 0 {
                    let captured = if node < 2 { packets } else { 0 };
                    let mut report = of_bucket(node, tenths, 2, [packets, captured]);
                    report.summary.since -= 10 * SECOND;
                    ledger.take(report).unwrap();
                }
            }
            // A ledger begins with the first report.
            if tenths % 10 == 0 {
                ledger.settle();
            }
        }
        hold(&ledger, 9, 0, 20);
    }
}

/// Node 1 reports until second 4, gets bucket 0 at 9.5 s, and counts as dead at 10 s. The ledger
/// learns of the union, and of its end, only then.
#[test]
fn a_dead_node_may_have_had_the_buckets_of_a_topology_that_came_late() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 0, None);
    for tenths in (0..200).step_by(5) {
        let seen = came(tenths, 20, 100);
        let revision = if tenths < 95 { 1 } else { 2 };
        take(&mut ledger, 0, tenths, revision, [seen, seen]);
        take(&mut ledger, 2, tenths, revision, [seen, 0]);
        if tenths <= 40 {
            take(&mut ledger, 1, tenths, 1, [seen, 0]);
        }
        if tenths == 100 {
            ledger.end(NodeId(1), BEGIN + 10 * SECOND, None);
        }
        ledger.settle();
        if tenths == 100 {
            add(&mut ledger, 2, 0, Some(1));
            add(&mut ledger, 3, 0, None);
        }
    }
    hold(&ledger, 5, 0, 62);
    let captured = row(&ledger).captured;
    assert!(captured.has(85), "{captured:?}");
}

/// Node 1 gets bucket 0, and its first report comes 12 s later. It lost no packet, and 5 packets of
/// the union are doubles.
#[test]
fn a_node_of_the_topology_may_report_late() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 0, None);
    for tenths in (0..200).step_by(5) {
        let seen = came(tenths, 20, 60);
        match tenths {
            30 => add(&mut ledger, 2, 0, Some(1)),
            40 => add(&mut ledger, 3, 1, None),
            _ => {}
        }
        let revision = if tenths < 35 { 1 } else { 3 };
        take(
            &mut ledger,
            0,
            tenths,
            revision,
            [seen, came(tenths, 20, 36)],
        );
        take(&mut ledger, 2, tenths, revision, [seen, 0]);
        if tenths >= 150 {
            take(&mut ledger, 1, tenths, 3, [seen, came(tenths, 31, 60)]);
        }
        ledger.settle();
        let row = row(&ledger);
        assert!(row.lost.has(0), "{tenths}: {row:?}");
        assert!(tenths < 100 || row.doubles.has(5), "{tenths}: {row:?}");
    }
    hold(&ledger, 5, 0, 30);
    assert_eq!(row(&ledger).captured, Span::exactly(45));
}

/// Node 1 has bucket 0 and captures all its packets. The analyzer does not hear it from second 4,
/// and counts it as dead in second 19. The topology stays as it was, because the coordinator hears
/// the node. It reports again after 26 s, or after more time than the ledger waits for a dead node.
#[test]
fn a_node_that_only_the_analyzer_does_not_hear_captures() {
    for back in [300, 2000] {
        let mut ledger = ledger();
        add(&mut ledger, 1, 1, None);
        for tenths in (0..2100).step_by(10) {
            let seen = came(tenths, 20, 240);
            take(&mut ledger, 0, tenths, 1, [seen, 0]);
            take(&mut ledger, 2, tenths, 1, [seen, 0]);
            if tenths <= 40 || tenths >= back {
                take(&mut ledger, 1, tenths, 1, [seen, seen]);
            }
            if tenths == 190 {
                ledger.end(NodeId(1), BEGIN + 19 * SECOND, None);
            }
            ledger.settle();
            let row = row(&ledger);
            assert!(row.lost.has(0) && row.doubles.has(0), "{tenths}: {row:?}");
        }
        let row = row(&ledger);
        assert!(row.lost.is_exact() && row.doubles.is_exact(), "{row:?}");
        assert_eq!(row.captured.least, 220, "{row:?}");
    }
}

/// Node 1 hangs, and its device captures on. Node 0 gets bucket 0, and its port loses 2 packets. So
/// no packet is lost, and node 0's packets are doubles. Node 1 reports again after traffic stopped.
#[test]
fn what_a_hung_node_captured_counts_in_the_interval_in_which_it_hung() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 1, None);
    for tenths in (0..700).step_by(10) {
        match tenths {
            80 => add(&mut ledger, 2, 1, Some(0)),
            90 => add(&mut ledger, 3, 0, None),
            _ => {}
        }
        let seen = came(tenths, 300, 400);
        let revision = if tenths < 90 { 1 } else { 3 };
        let other = came(tenths, 300, 398);
        take(&mut ledger, 0, tenths, revision, [other, other]);
        take(&mut ledger, 2, tenths, revision, [seen, 0]);
        if tenths <= 30 || tenths >= 520 {
            take(&mut ledger, 1, tenths, revision.min(1), [seen, seen]);
        }
        if tenths == 180 {
            ledger.end(NodeId(1), BEGIN + 18 * SECOND, None);
        }
        ledger.settle();
    }
    hold(&ledger, 98, 0, 100);
}

/// The revisions of a coordinator that became the active one later.
const LATER: u64 = 1 << 32;

/// Checks that the spans contain these numbers of doubled and lost packets, and are not wider than
/// `most`.
pub(super) fn hold(ledger: &Ledger, doubles: i64, lost: i64, most: i64) {
    let row = row(ledger);
    assert!(row.doubles.has(doubles) && row.lost.has(lost), "{row:?}");
    let is_narrow = |span: Span| span.most - span.least <= most;
    assert!(is_narrow(row.doubles) && is_narrow(row.lost), "{row:?}");
}

/// Two coordinators lead. Of the first one's branch, in which node 1 gets bucket 0, the analyzer
/// reads nothing. The second one's topology keeps the owner. Both nodes capture 5 packets. When the
/// nodes follow the second coordinator, both miss 4 packets.
#[test]
fn a_fork_of_which_one_branch_is_read_makes_spans() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 0, None);
    for tenths in (0..200).step_by(5) {
        let seen = came(tenths, 20, 100);
        if tenths == 60 {
            add(&mut ledger, LATER + 2, 0, None);
        }
        let revision = match tenths {
            ..40 => 1,
            40..85 => 3,
            _ => LATER + 2,
        };
        let first = came(tenths, 20, 45) + came(tenths, 84, 100);
        take(&mut ledger, 0, tenths, revision, [seen, first]);
        let second = came(tenths, 40, 80);
        take(&mut ledger, 1, tenths, revision, [seen, second]);
        let revision = if tenths < 55 { 1 } else { LATER + 2 };
        take(&mut ledger, 2, tenths, revision, [seen, 0]);
        ledger.settle();
    }
    hold(&ledger, 5, 4, 20);
}

/// Node 1 and then node 0 follow a coordinator of which the analyzer reads nothing. Its branch
/// moves bucket 0 twice without a union: both nodes capture 5 packets, then both miss 4 packets.
#[test]
fn a_topology_that_stays_unknown_may_be_of_another_branch() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 0, None);
    for tenths in (0..300).step_by(5) {
        let seen = came(tenths, 20, 100);
        let revision = if tenths < 40 { 1 } else { LATER + 2 };
        let first = came(tenths, 20, 45) + came(tenths, 84, 100);
        take(&mut ledger, 0, tenths, revision, [seen, first]);
        let second = came(tenths, 40, 80);
        take(&mut ledger, 1, tenths, revision, [seen, second]);
        take(&mut ledger, 2, tenths, 1, [seen, 0]);
        ledger.settle();
    }
    hold(&ledger, 5, 4, 20);
}

/// Another coordinator leads, and moves bucket 0 through a union. The analyzer does not read the
/// union, and node 2 takes no topologies any more. This is no fork: the 5 doubles are exact.
#[test]
fn a_change_by_a_new_leader_is_exact() {
    for unread in [false, true] {
        let mut ledger = ledger();
        add(&mut ledger, 1, 0, None);
        for tenths in (0..200).step_by(5) {
            let seen = came(tenths, 20, 100);
            match tenths {
                40 if !unread => add(&mut ledger, LATER + 2, 0, Some(1)),
                50 => add(&mut ledger, LATER + 3, 1, None),
                _ => {}
            }
            let revision = match tenths {
                ..40 => 1,
                40..45 => LATER + 2,
                _ => LATER + 3,
            };
            let first = came(tenths, 20, 45);
            take(&mut ledger, 0, tenths, revision, [seen, first]);
            let second = came(tenths, 40, 100);
            take(&mut ledger, 1, tenths, revision, [seen, second]);
            take(&mut ledger, 2, tenths, 1, [seen, 0]);
            ledger.settle();
        }
        hold(&ledger, 5, 0, 0);
    }
}

/// In each second there is a new topology, which the ledger learns of half a second after the
/// nodes. Bucket 0 moves from node 0 to node 2. Node 1, whose port lost packets, never had the
/// bucket.
#[test]
fn topologies_that_are_unknown_for_half_a_second_each_make_no_spans() {
    let mut ledger = ledger();
    for tenths in (0..300).step_by(5) {
        let revision = 1 + u64::min(tenths / 10, 14);
        if tenths % 10 == 5 {
            let new_owner = Some(2).filter(|_| revision == 8);
            add(
                &mut ledger,
                revision,
                if revision < 9 { 0 } else { 2 },
                new_owner,
            );
        }
        let seen = came(tenths, 20, 140);
        take(
            &mut ledger,
            0,
            tenths,
            revision,
            [seen, came(tenths, 20, 80)],
        );
        take(&mut ledger, 1, tenths, revision, [seen - seen.min(3), 0]);
        take(
            &mut ledger,
            2,
            tenths,
            revision,
            [seen, came(tenths, 75, 140)],
        );
        ledger.settle();
    }
    hold(&ledger, 5, 0, 0);
}
