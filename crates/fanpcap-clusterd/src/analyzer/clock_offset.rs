//! Estimates how far the nodes' clocks are ahead of the analyzer's.

use std::collections::VecDeque;

use fanpcap_cluster::NodeId;

/// Number of kept reports. The report with the fastest transmission gives the best estimate.
const KEPT: usize = 8;

/// By how much a node's clock is ahead of the analyzer's.
#[derive(Debug, Default)]
pub(super) struct ClockOffset(VecDeque<i64>);

impl ClockOffset {
    /// Notes a report that the node made at `stamp` by its own clock, and that came at `now`.
    pub(super) fn note(&mut self, stamp: u64, now: u64) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back((stamp as i64).wrapping_sub(now as i64));
    }

    /// How many nanoseconds the node's clock is ahead of the analyzer's. This estimate assumes that
    /// the fastest report came without delay.
    pub(super) fn ahead(&self) -> i64 {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// Like [`ClockOffset::ahead`], but 0 if the clocks differ by at most `skew`.
    pub(super) fn beyond(&self, skew: u64) -> i64 {
        let ahead = Some(self.ahead()).filter(|ahead| ahead.unsigned_abs() > skew);
        ahead.unwrap_or(0)
    }
}

/// The clocks that differ from the median clock by more than `skew`, and by how much each is ahead
/// of the median. Of two middle values, the one nearer to this machine's clock is the median.
pub(super) fn odd(
    offsets: impl Iterator<Item = (Option<NodeId>, i64)>,
    skew: u64,
) -> Vec<(Option<NodeId>, i64)> {
    let offsets: Vec<_> = offsets.collect();
    let mut sorted: Vec<i64> = offsets.iter().map(|(_, ahead)| *ahead).collect();
    sorted.sort_unstable();
    let at = sorted.len() / 2;
    let middles = [at.saturating_sub(1 - sorted.len() % 2), at];
    let middles = middles.iter().filter_map(|&at| sorted.get(at));
    let middle = middles.min_by_key(|ahead| ahead.unsigned_abs());
    let middle = middle.copied().unwrap_or(0);
    let differs = |(who, ahead): (Option<NodeId>, i64)| (who, ahead.saturating_sub(middle));
    let all = offsets.into_iter().map(differs);
    all.filter(|(_, ahead)| ahead.unsigned_abs() > skew)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_that_differs_from_most_is_named() {
        let node = |id: u32, ahead| (Some(NodeId(id)), ahead);
        let this = (None, 0);
        let odd = |offsets: &[(Option<NodeId>, i64)]| odd(offsets.iter().copied(), 10);
        assert_eq!(odd(&[this]), []);
        assert_eq!(odd(&[node(1, 9), node(2, -9), this]), []);
        assert_eq!(odd(&[node(1, 500), this]), [node(1, 500)]);
        let nodes = [node(1, 0), node(2, -500), node(3, 4), this];
        assert_eq!(odd(&nodes), [node(2, -500)]);
        // `None` is this machine's clock.
        assert_eq!(odd(&[node(1, 500), node(2, 502), this]), [(None, -500)]);
    }

    #[test]
    fn the_fastest_report_tells() {
        let mut clock_offset = ClockOffset::default();
        for (stamp, now) in [(100, 130), (200, 205), (300, 390)] {
            clock_offset.note(stamp, now);
        }
        assert_eq!(
            (
                clock_offset.ahead(),
                clock_offset.beyond(5),
                clock_offset.beyond(4)
            ),
            (-5, 0, -5)
        );
    }
}
