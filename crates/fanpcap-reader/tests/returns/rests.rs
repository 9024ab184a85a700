//! A reader of records that rests while a busy ring fills.

use super::fake::{OPTIONS, Return, times};
use super::program::{FakeProgram, record, records};
use fanpcap_reader::Reader;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const TIMEOUT: Option<Duration> = Some(Duration::from_millis(100));
const COUNT: fn(i32) -> Return = Return::Count;

#[test]
fn a_busy_reader_rests_and_asks_for_nothing() {
    let (device, input) = FakeProgram::new(TIMEOUT);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    device.arrive(&records([1]));
    assert_eq!(times(&reader, -1).0, COUNT(1));
    // Send 100 packets within a millisecond. 85 of them fill an eighth of the ring, so the reader
    // rests for the time of about 85 packets.
    device.arrive(&(1..=100).map(|it| record(it * 10, 60)).collect::<Vec<_>>());
    assert_eq!(times(&reader, -1).0, COUNT(100));
    device.arrive(&records([1001]));
    let begun = Instant::now();
    assert_eq!(times(&reader, -1).0, COUNT(1));
    assert!(begun.elapsed() >= Duration::from_micros(840));
    assert!(device.armed.lock().unwrap().is_empty());
}

/// At a rest of 20 ms, a burst can fill a pool before the rest ends.
#[test]
fn a_packet_without_room_ends_a_rest() {
    let (device, input) = FakeProgram::new(None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    let times_of = |stamps: [u64; 2], drops| {
        device.drops.store(drops, Ordering::Release);
        device.arrive(&records(stamps));
        let begun = Instant::now();
        assert_eq!(times(&reader, -1).0, COUNT(2));
        begun.elapsed()
    };
    let rest = Duration::from_millis(20);
    // One packet in a millisecond: the reader rests as long as it may.
    times_of([1, 1000], false);
    times_of([2000, 3000], false);
    assert!(times_of([4000, 5000], false) >= rest);
    let quickest = (6..12)
        .step_by(2)
        .map(|it| times_of([it * 1000, it * 1000 + 1000], true));
    assert!(quickest.min().unwrap() < rest);
}
