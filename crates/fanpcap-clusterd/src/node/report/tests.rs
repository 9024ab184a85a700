//! Counts are read at one time.

use super::*;

#[test]
fn counts_are_told_with_the_time_when_they_were_read() {
    // Stopped while it read first, the clock set back while it read next.
    let mut times = [1, 2_000_000_000, 2_000_000_001, 5, 6, 7].into_iter();
    let mut readings = 0..;
    let told = at_one_time(|| readings.next(), || times.next().unwrap());
    assert_eq!(told, Some((2, 7)));
    let mut stopped = (0..).map(|reading| reading * (AT_ONCE + 1));
    let told = at_one_time(|| readings.next(), || stopped.next().unwrap());
    assert_eq!(told, None);
    assert_eq!(at_one_time(|| None::<()>, || 0), None);
}
