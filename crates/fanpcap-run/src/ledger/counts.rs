//! The devices' counters, read repeatedly. The ledger derives from them an upper bound of the
//! packets that no member could count.

use std::collections::{BTreeMap, VecDeque};

use fanpcap_linux::netlink::link;
use fanpcap_linux::wait::clock;

/// How long the readings of a device are kept, in nanoseconds. Each scan of the ledger adds one
/// reading, every 2 to 200 ms. The ledger asks for readings of one second ago.
const KEPT_NS: u64 = 2_000_000_000;

/// Readings of each device, newest last: `CLOCK_MONOTONIC` nanoseconds, and packets in both
/// directions.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts(BTreeMap<u32, VecDeque<(u64, u64)>>);

impl Counts {
    /// Reads the counters of `devices`, leaving out devices where this fails.
    pub(super) fn of(devices: &[u32]) -> Self {
        let mut counts = Self::default();
        devices.iter().for_each(|&ifindex| counts.ask(ifindex));
        counts
    }

    /// Adds a device, if it is new.
    pub(super) fn meet(&mut self, ifindex: u32) {
        if !self.0.contains_key(&ifindex) {
            self.ask(ifindex);
        }
    }

    /// Reads the counters of all devices.
    pub(super) fn ask_all(&mut self) {
        let devices: Vec<u32> = self.0.keys().copied().collect();
        devices.into_iter().for_each(|ifindex| self.ask(ifindex));
    }

    fn ask(&mut self, ifindex: u32) {
        // Read the time first: the count must not be older than its time.
        let now = clock::monotonic_ns();
        if let Ok(packets) = link::packets(ifindex) {
            self.note(ifindex, now, packets);
        }
    }

    fn note(&mut self, ifindex: u32, at_ns: u64, packets: u64) {
        let counts = self.0.entry(ifindex).or_default();
        counts.push_back((at_ns, packets));
        let oldest_ns = at_ns.saturating_sub(KEPT_NS);
        // Keep one reading from before `oldest_ns`, the last one: `before` may ask for it.
        while counts
            .get(1)
            .is_some_and(|(noted_ns, _)| *noted_ns < oldest_ns)
        {
            counts.pop_front();
        }
    }

    /// The last reading of the device `ifindex`, or of each device if `ifindex` is `None`.
    pub(super) fn last(&self, ifindex: Option<u32>) -> impl Iterator<Item = (u32, u64)> {
        let of_device = move |it: &u32| ifindex.is_none_or(|ifindex| ifindex == *it);
        let devices = self.0.iter().filter(move |(it, _)| of_device(it));
        devices.filter_map(|(&ifindex, counts)| Some((ifindex, counts.back()?.1)))
    }

    /// The newest reading of a device before `at_ns`; `None` if no kept reading is that old.
    pub(super) fn before(&self, ifindex: u32, at_ns: u64) -> Option<u64> {
        let counts = self.0.get(&ifindex)?.iter().rev();
        let older = counts.copied().find(|(noted_ns, _)| *noted_ns < at_ns);
        older.map(|(_, packets)| packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_before_a_time_is_never_a_newer_one() {
        const STEP: u64 = 20_000_000;
        let mut counts = Counts::default();
        (1..=200).for_each(|at| counts.note(7, at * STEP, at * 100));
        let before = |at_ns| counts.before(7, at_ns);
        assert_eq!(before(150 * STEP + 1), Some(15_000));
        assert_eq!(before(150 * STEP), Some(14_900));
        assert_eq!(
            before(200 * STEP - KEPT_NS),
            Some(9900),
            "the last older one"
        );
        assert_eq!(before(99 * STEP), None, "no longer kept");
        assert_eq!(counts.before(8, STEP), None);
        counts.note(8, 5, 1);
        let last = |ifindex| counts.last(ifindex).collect::<Vec<_>>();
        assert_eq!(last(Some(7)), [(7, 20_000)]);
        assert_eq!(last(None), [(7, 20_000), (8, 1)]);
    }
}
