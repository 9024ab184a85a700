//! Nodes that the analyzer does not hear, in distribution mode: they restart, return or leave.

use super::model::{Model, SECOND};
use super::model_event::ModelEvent;
use super::named::BEGIN;
use super::owners::{add, add_of, came, hold, ledger, row, take, take_since};
use crate::identity::NodeId;

/// Node 1 has bucket 0 and captures all its packets. The analyzer does not hear it from second 4,
/// and counts it as dead in second 19. In second 26 its counters begin again at 0. Its clock may be
/// behind after that, so the new counters seem to be older.
#[test]
fn a_node_that_was_not_heard_captured_until_it_restarted() {
    for since in [260, 15] {
        let mut ledger = ledger();
        add(&mut ledger, 1, 1, None);
        for tenths in (0..2000).step_by(10) {
            let seen = came(tenths, 20, 300);
            take(&mut ledger, 0, tenths, 1, [seen, 0]);
            take(&mut ledger, 2, tenths, 1, [seen, 0]);
            match tenths {
                ..20 => {}
                20..=40 => take_since(&mut ledger, (1, 18), tenths, 1, [seen, seen]),
                41..260 => {}
                _ => {
                    let seen = came(tenths, 260, 300);
                    take_since(&mut ledger, (1, since), tenths, 1, [seen, seen]);
                }
            }
            if tenths == 190 {
                ledger.end(NodeId(1), BEGIN + 19 * SECOND, None);
            }
            ledger.settle();
            let row = row(&ledger);
            let lost = i64::from(tenths >= 260) * 3;
            assert!(
                row.lost.has(lost) && row.doubles.has(0),
                "{tenths}: {row:?}"
            );
        }
        hold(&ledger, 0, 0, 240);
        // The node's earlier counters do not count on after its new counters' first report.
        let most = row(&ledger).captured.most;
        assert!(most <= 280 + 12, "{since}: {most}");
    }
}

/// Node 1 saw and captured all packets of bucket 0. The analyzer does not hear it any more, and the
/// other nodes' ports lost 30 of these packets.
#[test]
fn what_a_node_saw_before_it_was_not_heard_was_offered() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 1, None);
    for tenths in (0..600).step_by(10) {
        let seen = came(tenths, 20, 160);
        let other = seen - seen.min(30);
        take(&mut ledger, 0, tenths, 1, [other, 0]);
        take(&mut ledger, 2, tenths, 1, [other, 0]);
        if tenths <= 150 {
            take(&mut ledger, 1, tenths, 1, [seen, seen]);
        }
        if tenths == 300 {
            ledger.end(NodeId(1), BEGIN + 30 * SECOND, None);
        }
        ledger.settle();
        let row = row(&ledger);
        assert!(row.doubles.has(0) && row.lost.has(0), "{tenths}: {row:?}");
    }
    assert_eq!(row(&ledger).offered.least, 130);
}

/// Node 1 has bucket 0 and captures all its packets. It reports only after the topology has given
/// the bucket to node 0. Or it reported long ago, so that the ledger gave its counters up.
#[test]
fn what_a_node_captured_before_its_first_report_is_no_double() {
    for is_given_up in [false, true] {
        let mut ledger = ledger();
        add(&mut ledger, 1, 0, None);
        for tenths in (0..3000).step_by(10) {
            if is_given_up && tenths <= 40 {
                take(&mut ledger, 1, tenths, 1, [0, 0]);
            }
            match tenths {
                60 => ledger.end(NodeId(1), BEGIN + 6 * SECOND, None),
                70 => add_of(&mut ledger, &[0, 2], 2, 0, None),
                1500 => add(&mut ledger, 3, 0, Some(1)),
                1510 => add(&mut ledger, 4, 1, None),
                1700 => add(&mut ledger, 5, 1, Some(0)),
                1710 => add_of(&mut ledger, &[0, 2], 6, 0, None),
                _ => {}
            }
            let revision = match tenths {
                ..70 => 1,
                70..1500 => 2,
                1500..1510 => 3,
                1510..1700 => 4,
                1700..1710 => 5,
                _ => 6,
            };
            let seen = came(tenths, 1600, 1650);
            take(&mut ledger, 0, tenths, revision, [seen, 0]);
            take(&mut ledger, 2, tenths, revision, [seen, 0]);
            if tenths >= 2000 {
                take(&mut ledger, 1, tenths, revision, [seen, seen]);
            }
            ledger.settle();
            let row = row(&ledger);
            assert!(row.doubles.has(0) && row.lost.has(0), "{tenths}: {row:?}");
        }
        hold(&ledger, 0, 0, 50);
    }
}

/// The analyzer does not hear node 2, whose port loses packets. What its port lost before is not in
/// question, also when the other nodes' reports of that time are forgotten.
#[test]
fn what_a_port_lost_before_its_node_was_not_heard_is_not_in_question() {
    for seed in 0..4 {
        let mut model = Model::new(seed, 3, false);
        model.lose(2, 300);
        model.run(10 * SECOND, true);
        model.apply(ModelEvent::Unheard(1, 19));
        model.run(12 * SECOND, false);
        assert_eq!(model.check_at_rest(), Ok(()));
    }
}

/// Node 1 dies in second 4, and counts as dead in second 19. The topology gives its bucket to node
/// 0, which captures from second 20.5 on, and then lacks node 1. A node may load a topology up to a
/// second late. So node 1 may have captured until second 22, and not for longer.
#[test]
fn a_dead_node_that_lost_its_buckets_captures_nothing() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 1, None);
    for tenths in (0..600).step_by(10) {
        match tenths {
            200 => add(&mut ledger, 2, 1, Some(0)),
            210 => add_of(&mut ledger, &[0, 2], 3, 0, None),
            _ => {}
        }
        let revision = match tenths {
            ..200 => 1,
            200..210 => 2,
            _ => 3,
        };
        let seen = came(tenths, 20, 300);
        let captured = came(tenths, 205, 250) + came(tenths, 270, 300);
        take(&mut ledger, 0, tenths, revision, [seen, captured]);
        take(&mut ledger, 2, tenths, revision, [seen, 0]);
        if tenths <= 40 {
            take(&mut ledger, 1, tenths, 1, [seen, seen]);
        }
        if tenths == 190 {
            ledger.end(NodeId(1), BEGIN + 19 * SECOND, None);
        }
        ledger.settle();
    }
    let missed = 205 - 40 + 20;
    hold(&ledger, 0, missed, 190);
    // What node 0 captured, what node 1 reported, and what came until the reports after second 22.
    let most = (280 - missed) + 230 - 40;
    let captured = row(&ledger).captured;
    assert!(
        captured.has(most - 10) && captured.most <= most,
        "{captured:?}"
    );
}

/// Node 1 has bucket 0 in a topology, and never reports. Later node 0 has the bucket. After a pause
/// in the traffic, the bucket's packets are certain.
#[test]
fn a_node_that_never_reports_is_forgotten_after_a_pause() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 1, None);
    for tenths in (0..400).step_by(10) {
        match tenths {
            90 => add(&mut ledger, 2, 1, Some(0)),
            100 => add_of(&mut ledger, &[0, 2], 3, 0, None),
            _ => {}
        }
        let revision = match tenths {
            ..90 => 1,
            90..100 => 2,
            _ => 3,
        };
        let later = came(tenths, 200, 300);
        let seen = came(tenths, 20, 130) + later;
        let captured = came(tenths, 95, 130) + later;
        take(&mut ledger, 0, tenths, revision, [seen, captured]);
        take(&mut ledger, 2, tenths, revision, [seen, 0]);
        ledger.settle();
    }
    hold(&ledger, 0, 75, 110);
}
