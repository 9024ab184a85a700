//! Two processes read one pool, as after fork(2).
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "lengths in here are below 4096, and a test may panic"
)]

mod pool;

use fanpcap_ring::{Layout as _, Pool, Remains};
use pool::{CLOCKS, DEVICE, Writer, drain, long, new_pool_of_two, time_of, times};

/// What a successor of both readers finds.
fn remains(writer: &Writer) -> Remains {
    Remains::of_pool(Pool::new(writer.copy(), DEVICE.ifindex, CLOCKS), 0)
}

/// The process that is behind stands in a snapshot while the other reads more blocks than the pool
/// has.
#[test]
fn a_process_that_is_far_behind_gives_no_block_back_that_is_in_use_again() {
    let (writer, [mut slow, mut fast], _) = new_pool_of_two(4, 2);
    for stamp in 1..=5 {
        assert!(writer.arrive(0, &long(stamp)));
    }
    assert!(slow.open());
    assert!(slow.next_frame().unwrap().is_some());
    assert_eq!(drain(&mut fast), times(&[2, 3, 4, 5]));
    for stamp in 6..=41 {
        assert!(writer.arrive(0, &long(stamp)), "{stamp}");
        assert_eq!(drain(&mut fast), times(&[stamp]));
    }
    let unread: Vec<u64> = (42..=47).collect();
    for &stamp in &unread {
        assert!(writer.arrive(0, &long(stamp)));
    }
    let free = writer.free();
    // Garbage of the first packet's block may come, but no more than two packets of it.
    let late = std::iter::from_fn(|| slow.next_frame().unwrap().map(|it| it.stamp())).count();
    assert!(late <= 2, "{late}");
    slow.release();
    assert_eq!(
        writer.free(),
        free,
        "blocks with unread packets were given back"
    );
    let mut got = drain(&mut fast);
    got.extend(drain(&mut slow));
    assert_eq!(got, times(&unread), "each once");
    assert!(writer.arrive(0, &long(48)));
    assert_eq!(drain(&mut fast), times(&[48]));
    assert!(!fast.open());
    assert_eq!(writer.free(), 4);
}

/// The other process's older position must neither wake this process again and again, nor make a
/// successor read again what was read.
#[test]
fn what_a_process_that_is_behind_stores_makes_no_packet_unread() {
    let (writer, [mut slow, mut fast], words) = new_pool_of_two(4, 2);
    for stamp in 1..=5 {
        assert!(writer.arrive(stamp as usize % 2, &long(stamp)));
    }
    assert!(slow.open());
    assert_eq!(drain(&mut fast), times(&[1, 2, 3, 4, 5]));
    for _ in 0..2 {
        assert!(slow.next_frame().unwrap().is_some());
    }
    slow.release();
    assert!(words.has_unread(), "an older position is stored");
    let left = remains(&writer).head();
    assert_eq!(
        left,
        Some(time_of(4)),
        "the block of packet 3 was given back"
    );
    assert!(!fast.open() && !words.has_unread());
    assert_eq!(remains(&writer).head(), None);
}
