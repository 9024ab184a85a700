//! The counts of a node that joined while packets came, in distribution mode.

use super::model::SECOND;
use super::named::BEGIN;
use super::owners::{add, ledger, row, take, take_since};
use crate::identity::NodeId;

/// Two seconds after the account's begin a packet of the bucket comes every tenth of a second. Node
/// 1 joins, and node 0 dies. Node 1 reports half a second later than node 2, so it reports more
/// packets. This does not make more packets uncertain: node 2 saw all packets.
#[test]
fn later_reports_of_a_joined_node_do_not_widen_what_a_dead_node_captured() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 0, None);
    let all = |tenths: u64| tenths.saturating_sub(20);
    for tenths in [10, 20, 30, 40, 50] {
        take(&mut ledger, 0, tenths, 1, [all(tenths); 2]);
        take(&mut ledger, 2, tenths + 3, 1, [all(tenths + 3), 0]);
        ledger.settle();
    }
    let joined = |tenths: u64| [tenths - 35, 0];
    for tenths in [48, 58] {
        take_since(&mut ledger, (1, 35), tenths, 1, joined(tenths));
    }
    add(&mut ledger, 2, 2, None);
    ledger.end(NodeId(0), BEGIN + 6 * SECOND, None);
    take(&mut ledger, 2, 63, 2, [all(63), 0]);
    take_since(&mut ledger, (1, 35), 68, 2, joined(68));
    ledger.settle();
    let captured = row(&ledger).captured;
    assert_eq!((captured.least, captured.most), (30, 43));
}
