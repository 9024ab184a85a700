//! When nodes saw beacons, by the analyzer's clock.

use super::*;

const MILLISECOND: u64 = SECOND / 1000;

/// How far apart the analyzer places the times at which three nodes saw the same beacon. `ahead`
/// says by how many nanoseconds the nodes' clocks are ahead. Node 1 sees each beacon half a second
/// before its report, node 2 sees it 3 ms later, and node 3 sees it 7 ms later.
fn apart(ahead: [i64; 3]) -> Option<u64> {
    let mut both = Both::new(Part::WHOLE);
    for seconds in 0..5u64 {
        for (node, (ahead, later)) in (1..).zip(ahead.into_iter().zip([0, 3, 7])) {
            let ago = 500 * MILLISECOND - later * MILLISECOND;
            let at = Report8 {
                seconds,
                ahead,
                age: -ahead,
                beacon: Some((seconds + 1, ago)),
                ..Report8::default()
            };
            both.report(node, at);
        }
        both.settle(seconds);
    }
    assert_eq!(both.node_reports.refused, 0);
    both.node_reports.account().apart
}

#[test]
fn beacons_of_nodes_with_wrong_clocks_are_put_on_the_analyzers_clock() {
    let hour = i64::try_from(3600 * SECOND).unwrap();
    for ahead in [[0, 0, 0], [0, hour, 0], [-hour, 0, hour], [hour, hour, 0]] {
        assert_eq!(apart(ahead), Some(7 * MILLISECOND), "{ahead:?}");
    }
}

/// If a clock seems to be ahead by at most `SKEW`, it is not corrected, because the transmission
/// time of reports can cause such a difference.
#[test]
fn a_clock_that_is_a_little_ahead_is_not_corrected() {
    let ahead = i64::try_from(SKEW).unwrap();
    assert_eq!(apart([0, 0, ahead]), Some(SKEW + 7 * MILLISECOND));
    assert_eq!(apart([0, 0, ahead + 1]), Some(7 * MILLISECOND));
}
