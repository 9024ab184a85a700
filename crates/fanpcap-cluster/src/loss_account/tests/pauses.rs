//! Pauses of the traffic in which a node was silent, in distribution mode.

use super::model::SECOND;
use super::named::BEGIN;
use super::owners::{add, came, hold, ledger, row, take, take_since};
use crate::identity::NodeId;
use crate::loss_account::Span;

/// Traffic comes in four parts, with pauses. Node 0 has bucket 0, and stands still in the second
/// and third part. In the second pause it is silent, and in the third pause node 2 is. Node 1 loses
/// 40 packets and later its counters, and node 2 loses the fourth part. So no node's count has all
/// packets, but before each of these losses a pause shows how many packets came.
#[test]
fn counts_are_aligned_in_pauses_in_which_a_node_was_silent() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 0, None);
    for tenths in (0..430).step_by(10) {
        if tenths == 240 {
            ledger.end(NodeId(0), BEGIN + 24 * SECOND, None);
        }
        let (first, last) = (came(tenths, 20, 70), came(tenths, 300, 370));
        if tenths <= 80 || tenths >= 290 {
            let seen = first + last;
            take(&mut ledger, 0, tenths, 1, [seen, seen]);
        }
        match tenths {
            ..=310 => {
                let seen = first + came(tenths, 100, 130) + came(tenths, 200, 270) + last;
                take(&mut ledger, 1, tenths, 1, [seen, 0]);
            }
            311..400 => {}
            _ => take_since(&mut ledger, (1, 395), tenths, 1, [0, 0]),
        }
        if tenths <= 260 || tenths >= 380 {
            let seen = first + came(tenths, 100, 170) + came(tenths, 200, 265);
            take(&mut ledger, 2, tenths, 1, [seen, 0]);
        }
        ledger.settle();
    }
    hold(&ledger, 0, 140, 0);
    assert_eq!(row(&ledger).offered, Span::exactly(260));
}

/// While node 0 is silent, node 1 loses 40 packets, a pause follows, node 2 loses the next packets,
/// and node 1 loses its counters. So node 1's old counts are aligned in a pause before their end.
#[test]
fn counts_that_ended_later_are_aligned_in_a_pause() {
    let mut ledger = ledger();
    add(&mut ledger, 1, 0, None);
    for tenths in (0..430).step_by(10) {
        if tenths == 320 {
            ledger.end(NodeId(0), BEGIN + 32 * SECOND, None);
        }
        let first = came(tenths, 20, 70);
        if tenths <= 80 {
            take(&mut ledger, 0, tenths, 1, [first, first]);
        }
        if tenths < 280 {
            let seen = first + came(tenths, 100, 130) + came(tenths, 200, 265);
            take(&mut ledger, 1, tenths, 1, [seen, 0]);
        } else {
            take_since(&mut ledger, (1, 275), tenths, 1, [0, 0]);
        }
        take(
            &mut ledger,
            2,
            tenths,
            1,
            [first + came(tenths, 100, 170), 0],
        );
        ledger.settle();
    }
    assert_eq!(row(&ledger).offered, Span::exactly(185));
}
