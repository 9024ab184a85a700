//! Totals of counters that wrap, and what a member's counters leave out.

use super::*;
use crate::page::MemberId;
use fanpcap_config::mode::Mode;

#[test]
fn totals_go_on_when_32_bits_wrap() {
    assert_eq!(unwrapped(0, 5), 5);
    assert_eq!(unwrapped(5, 5), 5);
    assert_eq!(unwrapped(u64::from(u32::MAX), 4), (1 << 32) + 4);
}

#[test]
fn a_total_that_comes_late_takes_nothing_back() {
    assert_eq!(unwrapped(10, 9), 10);
    assert_eq!(unwrapped((7 << 32) + 10, 9), (7 << 32) + 10);
    assert_eq!(unwrapped(7 << 32, u32::MAX), 7 << 32);
}

#[test]
fn what_was_counted_before_joining_is_not_the_groups() {
    let before = MemberCounters {
        received: 50,
        dropped: 2,
    };
    let mode = Mode::parse("lb").unwrap();
    let identity = Identity::new(7, mode, 1, MemberId::of_socket(1));
    let mut member = Member::new(identity, 0, before, None);
    let totals = member.handle_stats(60, 2);
    assert_eq!((totals.received, totals.dropped), (60, 2));
    let own = member.counters();
    assert_eq!((own.received, own.dropped), (10, 0));
}
