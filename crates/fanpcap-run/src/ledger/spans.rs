//! Spans of a device's packet counter that the bound of uncounted packets already contains. If
//! several members lose their last counters, their spans overlap, but each packet must be in the
//! bound only once.

/// Spans that do not overlap.
#[derive(Debug, Default)]
pub(super) struct Spans(Vec<(u64, u64)>);

impl Spans {
    /// Adds the span of the counter values from `from` to `to`. Returns how many packets of the
    /// span were in no earlier span.
    pub(super) fn add(&mut self, from: u64, to: u64) -> u64 {
        let (mut from, mut to) = (from, to.max(from));
        let mut new = to - from;
        let asked = (from, to);
        self.0.retain(|&(begin, end)| {
            let is_apart = end < asked.0 || asked.1 < begin;
            if !is_apart {
                new -= end.min(asked.1) - begin.max(asked.0);
                (from, to) = (from.min(begin), to.max(end));
            }
            is_apart
        });
        self.0.push((from, to));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_is_in_the_bound_once() {
        let mut spans = Spans::default();
        assert_eq!(spans.add(10, 20), 10);
        assert_eq!(spans.add(10, 20), 0);
        assert_eq!(spans.add(30, 40), 10);
        assert_eq!(spans.add(5, 12), 5, "one that begins before");
        assert_eq!(spans.add(18, 35), 10, "between two");
        assert_eq!(spans.add(0, 50), 15);
        assert_eq!(spans.add(60, 55), 0, "a counter that went back");
    }
}
