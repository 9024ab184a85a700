//! Tests that all counts of a report are read at one time, and only grow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use fanpcap_select::layout::Lanes;
use fanpcap_select::{Action, Claim, Claims, Filter, Program, Selection};

use super::*;
use crate::selector::Selector;

#[test]
fn counts_are_told_with_the_time_when_they_were_read() {
    // The process is stopped during the first reading. The clock is set back during the second
    // reading.
    let mut times = [1, 2_000_000_000, 2_000_000_001, 5, 6, 7].into_iter();
    let mut readings = 0..;
    let told = at_one_time(|| readings.next(), || times.next().unwrap());
    assert_eq!(told, Some((2, 7)));
    let mut stopped = (0..).map(|reading| reading * (AT_ONCE + 1));
    let told = at_one_time(|| readings.next(), || stopped.next().unwrap());
    assert_eq!(told, None);
    assert_eq!(at_one_time(|| None::<()>, || 0), None);
}

/// A reading of 2000 seen packets. `own` of these packets are this node's, including the `filtered`
/// and the `lost` packets.
fn reading(own: u64, filtered: u64, lost: u64) -> Counts {
    let one = |count| {
        let mut counts = Box::new([0; BUCKETS]);
        counts[7] = count;
        counts
    };
    Counts {
        seen: one(2000),
        captured: one(own - lost),
        own,
        causes: Causes {
            filtered,
            lost,
            ..Causes::default()
        },
    }
}

#[test]
fn sums_do_not_fall_when_one_reading_takes_longer_than_another() {
    let mut floor = Floor::default();
    let mut sums = |since, mut counts| {
        let sums = floor.sums(since, &mut counts);
        (sums.captured, sums.elsewhere, counts.captured[7])
    };
    assert_eq!(sums(1, reading(1000, 900, 0)), (100, 1000, 1000));
    assert_eq!(sums(1, reading(1005, 910, 0)), (100, 995, 1005));
    assert_eq!(sums(1, reading(1100, 990, 0)), (110, 900, 1100));
    assert_eq!(sums(1, reading(1100, 990, 9)), (110, 900, 1100));
    let new = (2, reading(500, 900, 0));
    assert_eq!(sums(new.0, new.1), (0, 1500, 500), "other counters");
}

/// Runs packets on two CPUs while the counts are read. Returns the number of all packets, the
/// number of packets that pass the filter of [`program`], and the sums of the last reading.
fn sums_under_load(selector: &Selector) -> ([u64; 2], Sums) {
    const TRIALS: u64 = 60;
    const PACKETS: u64 = 9_973;
    let passed = AtomicU64::new(0);
    let run = |first: u8, packets: u64| {
        let packets = u32::try_from(packets).unwrap();
        selector.program().run(&[first; 60], &[], packets).unwrap();
    };
    let pass = || {
        passed.fetch_add(1, Ordering::SeqCst);
        run(PASSES, 1);
    };
    let mut floor = Floor::default();
    let mut last = Sums::default();
    let mut read = || {
        let sums = floor.sums(1, &mut selector.counts());
        let pairs = [
            (last.seen, sums.seen),
            (last.captured, sums.captured),
            (last.filtered, sums.filtered),
            (last.ring, sums.ring),
        ];
        assert!(pairs.iter().all(|(last, now)| last <= now), "{pairs:?}");
        assert_eq!(sums.elsewhere, 0);
        last = sums;
        sums
    };
    thread::scope(|scope| {
        let runs = || {
            for _ in 0..TRIALS {
                run(!PASSES, PACKETS);
                pass();
            }
        };
        let running = [scope.spawn(runs), scope.spawn(runs)];
        while !running.iter().all(thread::ScopedJoinHandle::is_finished) {
            read();
        }
    });
    // During a reading, each CPU may have counted a packet for its bucket, but not yet as filtered.
    // So the highest number of passed packets may be two too high. After two more packets, the true
    // number is as high as this number.
    (0..2).for_each(|_| pass());
    let passed = passed.into_inner();
    ([2 * TRIALS * PACKETS + passed, passed], read())
}

/// The first byte of the frames that pass the filter.
const PASSES: u8 = 8;

/// A selection that takes all packets.
fn loaded(action: Action, filter: Option<Filter>) -> Selector {
    let program = Program {
        selection: Selection::default(),
        cluster: 7,
        action,
        // Several CPUs may count at the same time.
        lanes: Lanes::SHARED,
        filter,
    };
    let selector = Selector::load(&program, Some(0)).unwrap();
    selector.switch(&Claims::new(|_| Claim::Mine), 1);
    selector
}

#[test]
#[ignore = "needs root: eBPF"]
fn sums_only_grow_while_a_filter_drops_nearly_all() {
    let text = format!("ether[0] = {PASSES}");
    let code = fanpcap_pcap::compile_expression(&text).unwrap();
    let selector = loaded(Action::Pass, Some(Filter { text, code }));
    let ([packets, passed], sums) = sums_under_load(&selector);
    assert_eq!((sums.seen, sums.captured), (packets, passed));
    assert_eq!(sums.filtered, packets - passed);
}

#[test]
#[ignore = "needs root: eBPF"]
fn sums_only_grow_while_a_ring_is_full() {
    let shape = fanpcap_xdp::pool_shape().unwrap();
    let selector = loaded(Action::Ship { bytes: 80, shape }, None);
    let ([packets, _], sums) = sums_under_load(&selector);
    assert_eq!(sums.seen, packets);
    let captured = packets - sums.ring;
    assert!(
        (captured..=captured + 2).contains(&sums.captured),
        "{sums:?}"
    );
    assert!(sums.ring > packets / 2, "{sums:?}");
}
