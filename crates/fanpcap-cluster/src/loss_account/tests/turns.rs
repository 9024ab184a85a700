//! Nodes capture packets in turn, and one of them may capture packets in another node's turn.

use super::model::SECOND;
use super::named::{BEGIN, report};
use crate::identity::NodeId;
use crate::loss_account::{BucketAccount, Ledger, LedgerSettings, Verdict};

fn ledger() -> Ledger {
    let mut ledger = Ledger::new(LedgerSettings {
        skew: SECOND / 5,
        begin: BEGIN,
        analyzed: false,
    });
    ledger.set_in_turn(true);
    ledger
}

/// Gives the ledger a report of each node, made `seconds` after the begin. `nodes` has four numbers
/// of each node: how many packets of bucket 0 and of bucket 1 it saw, how many packets of its own
/// bucket it captured, and the second in which its last beacon came.
fn take<const NODES: usize>(ledger: &mut Ledger, seconds: u64, nodes: [[u64; 4]; NODES]) {
    for (node, [first, second, captured, beacon]) in nodes.into_iter().enumerate() {
        let seen = |bucket| match bucket {
            0 => first,
            1 => second,
            _ => 0,
        };
        let mut report = report(u32::try_from(node).unwrap(), seconds, seen);
        report.summary.beacon.sequence = beacon;
        report.summary.beacon.seen = BEGIN + beacon * SECOND;
        report.captured.fill(0);
        report.captured[node] = if node < 2 { captured } else { 0 };
        ledger.take(report).unwrap();
    }
    ledger.settle();
}

fn hold(total: &BucketAccount, misses: i64) {
    let is_so = total.lost.has(misses) && total.doubles.has(misses);
    assert!(is_so, "{misses}: {total:?}");
    let is_exact = total.lost.is_exact() && total.doubles.is_exact();
    assert!(misses > 0 || is_exact, "{total:?}");
}

#[test]
fn a_node_that_lacked_a_packet_is_uncertain() {
    // Each of two nodes has the packets of one bucket. Node 1 misses a packet of bucket 0, and from
    // then on captures packets of node 0 instead of its own. So 3 packets are lost, and 3 are
    // captured twice.
    for misses in [0, 1] {
        let mut ledger = ledger();
        for seconds in 0..12u64 {
            let times = seconds.saturating_sub(3).min(4);
            let lacks = u64::from(times > 1) * misses;
            let seen = 10 * times;
            let nodes = [
                [seen, seen, seen, seconds],
                [seen - lacks, seen, seen, seconds],
            ];
            take(&mut ledger, seconds, nodes);
        }
        hold(&ledger.account().total, 3 * i64::try_from(misses).unwrap());
    }
}

#[test]
fn a_node_whose_port_was_blind_at_rest_is_uncertain_when_it_sees_again() {
    // The port of node 1 delivers no packets from second 4 to second 38. No packets are sent from
    // second 6 to second 40. From second 40 to second 44, node 1 sees all packets. The packets that
    // it missed have shifted its turn, so until the update in second 46 it captures packets of node
    // 0 instead of its own.
    for is_blind in [false, true] {
        let mut ledger = ledger();
        for seconds in 0..60u64 {
            let came = |from: u64, until: u64| 10 * seconds.clamp(from, until).saturating_sub(from);
            let (early, late) = (came(2, 6), came(40, 44));
            let (mut other, mut beacon) = (early, seconds);
            if is_blind {
                other = came(2, 4);
                beacon = if seconds < 38 {
                    seconds.min(4)
                } else {
                    seconds
                };
            }
            let (all, other) = (early + late, other + late);
            take(
                &mut ledger,
                seconds,
                [[all, all, all, seconds], [other, other, other, beacon]],
            );
        }
        let total = ledger.account().total;
        hold(&total, if is_blind { 40 } else { 0 });
        assert!(!is_blind || total.lost.has(60), "{total:?}");
    }
}

#[test]
fn a_loss_below_one_that_was_forgotten_is_uncertain() {
    // The port of node 1 loses half of the packets of bucket 0. Then the port delivers each packet
    // three times. The ledger does not use the counts of node 1 while its port delivers packets
    // three times, because they exceed the counts of the other nodes. After a pause of the traffic,
    // the verdict on this port is sound again. Then the port of node 1 loses one packet, and node 1
    // captures three packets that belong to node 0.
    let mut ledger = ledger();
    let (mut seen, mut other, mut doubles) = (0, 0, 0);
    for seconds in 0..140u64 {
        let (come, comes_there) = match seconds {
            2..6 => (100, 50),
            6..20 => (100, 300),
            103 => (100, 99),
            20..60 | 104..108 => (100, 100),
            _ => (0, 0),
        };
        (seen, other) = (seen + come, other + comes_there);
        let whole = [seen, seen, seen, seconds];
        let nodes = [whole, [other, seen, seen, seconds], whole];
        take(&mut ledger, seconds, nodes);
        match seconds {
            19 => assert_eq!(ledger.verdict(NodeId(1)), Some(Verdict::Surplus)),
            100 => {
                assert_ne!(ledger.verdict(NodeId(1)), Some(Verdict::Surplus));
                doubles = ledger.account().total.doubles.most;
            }
            _ => {}
        }
    }
    let total = ledger.account().total;
    assert!(total.doubles.most >= doubles + 3, "{doubles}: {total:?}");
}
