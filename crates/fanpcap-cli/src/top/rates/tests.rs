//! Rates, shares and skew from made-up snapshots.

use fanpcap_group::view::Place;
use fanpcap_snapshot::Counts;

use super::*;
use crate::top::fixture::{SECOND, after, before, between, counts, device, look, member};

/// A snapshot with a member of group 7 for each entry in `all`, with inodes and pids from 1.
fn members(seconds: u32, all: &[Counts]) -> Snapshot {
    let mut snapshot = look(seconds);
    // No member gets more packets than the device.
    let packets = u64::from(seconds) * 1_000_000;
    snapshot.devices = vec![device(2, "eth0", [packets, 0, 0, 0])];
    snapshot.sockets = (1..)
        .zip(all)
        .map(|(number, &counts)| member(number, number, counts))
        .collect();
    snapshot
}

fn group_of(view: &View) -> &Group {
    &view.devices[0].groups[0]
}

#[test]
fn rates_are_over_the_time_between_two_readings() {
    // The snapshots are a second apart, and the readings half a second.
    let before = members(100, &[counts(100 * SECOND, 1000, 10)]);
    let after = members(101, &[counts(100 * SECOND + SECOND / 2, 2000, 30)]);
    let view = between(&before, &after);
    let member = &group_of(&view).members[0];
    assert_eq!(member.packets_per_second, Some(2000.0));
    assert_eq!(member.ring_full_drops_per_second, Some(40.0));
    assert_eq!(member.counters_age_seconds, Some(0.5));
    assert_eq!(view.interval_seconds, Some(1.0));
}

#[test]
fn packets_that_came_before_the_interval_make_a_rate_rough() {
    let read = |second: u64, received| counts(second * SECOND, received, 0);
    let rough = |packets: u64| {
        let before = members(100, &[read(100, 0), read(100, 0)]);
        let mut after = members(101, &[read(101, 900), read(101, 0)]);
        after.devices[0].counters = before.devices[0].counters;
        if let Some(counters) = &mut after.devices[0].counters {
            counters.rx_packets += packets;
            counters.tx_packets += packets;
        }
        let view = between(&before, &after);
        let group = group_of(&view);
        let members = group.members.iter().map(|member| member.rate_is_rough);
        assert_eq!(group.packets_per_second, Some(900.0));
        (group.members_with_rough_rates, members.collect::<Vec<_>>())
    };
    assert_eq!(rough(0), (1, vec![true, false]));
    assert_eq!(rough(299), (1, vec![true, false]));
    assert_eq!(rough(300), (0, vec![false, false]));
}

#[test]
fn shares_and_skew_are_of_the_known_rates() {
    let read = |second: u64, received: [u64; 4]| -> Vec<Counts> {
        let all = received.iter();
        all.map(|&received| counts(second * SECOND, received, 0))
            .collect()
    };
    let before = members(100, &read(100, [0, 0, 0, 0]));
    let mut later = read(101, [600, 300, 300, 900]);
    later[3].read_ns = 90 * SECOND;
    let view = between(&before, &members(101, &later));
    let group = group_of(&view);
    let shares: Vec<_> = group
        .members
        .iter()
        .map(|member| member.share_percent)
        .collect();
    assert_eq!(shares, [Some(50.0), Some(25.0), Some(25.0), None]);
    assert_eq!((group.skew, group.members_with_rates), (Some(1.5), 3));
    assert_eq!(group.packets_per_second, Some(1200.0));
    // The fourth member's old counters are still part of the group's total.
    assert_eq!(group.received_packets_total, Some(2100));
}

#[test]
fn even_rates_have_skew_one_and_idle_groups_none() {
    assert_eq!(skew(&[5.0, 5.0, 5.0]), Some(1.0));
    assert_eq!(skew(&[6.0, 0.0]), Some(2.0));
    assert_eq!(skew(&[0.0, 0.0]), None);
    assert_eq!(skew(&[7.0]), None);
    assert_eq!(skew(&[]), None);
}

#[test]
fn a_counter_that_went_back_has_no_rate() {
    let before = members(100, &[counts(100 * SECOND, 1000, 10)]);
    let after = members(101, &[counts(101 * SECOND, 5, 12)]);
    let view = between(&before, &after);
    let member = &group_of(&view).members[0];
    assert_eq!(member.packets_per_second, None);
    assert_eq!(member.share_percent, None);
    assert_eq!(member.received_packets_total, Some(5));
    assert_eq!(member.ring_full_drops_per_second, Some(2.0));
}

#[test]
fn a_device_made_anew_has_no_rate() {
    let mut before = look(100);
    before.devices = vec![device(2, "eth0", [900, 900, 0, 0])];
    let mut after = look(101);
    after.devices = vec![device(2, "eth0", [5, 500, 0, 0])];
    let view = between(&before, &after);
    assert_eq!(view.devices[0].received_packets_per_second, None);
    assert_eq!(view.devices[0].received_packets_total, Some(5));
}

#[test]
fn members_come_without_a_rate_and_go_without_a_trace() {
    let at = |second: u64, received| counts(second * SECOND, received, 0);
    let before = members(100, &[at(100, 100), at(100, 100)]);
    let mut after = members(101, &[at(101, 300), at(101, 300)]);
    // The second member is gone, and another process has a socket with its inode.
    after.sockets[1] = member(2, 9, at(101, 300));
    let view = between(&before, &after);
    let rates: Vec<_> = group_of(&view)
        .members
        .iter()
        .map(|member| (member.pid, member.packets_per_second))
        .collect();
    assert_eq!(rates, [(Some(1), Some(200.0)), (Some(9), None)]);
}

#[test]
fn old_counters_are_stale_and_not_zero() {
    let read = counts(90 * SECOND, 500, 5);
    let read_taken = Some(1);
    let later = Counts { read_taken, ..read };
    let view = between(&members(100, &[read]), &members(101, &[later]));
    let member = &group_of(&view).members[0];
    assert!(member.stale && member.counters_age_seconds == Some(11.0));
    assert_eq!(
        (member.packets_per_second, member.backlog_packets),
        (None, None)
    );
    assert_eq!(member.received_packets_total, Some(500));
    assert_eq!(group_of(&view).packets_per_second, None);
}

/// The rates of the only member, with snapshots a second apart.
fn rates_of(looks: &[Counts]) -> Vec<Option<f64>> {
    let mut rates = Rates::default();
    let look = |(second, counts): (u32, &Counts)| {
        let view = rates.next(members(second, &[*counts]));
        group_of(&view).members[0].packets_per_second
    };
    (100..).zip(looks).map(look).collect()
}

#[test]
fn until_counters_are_read_anew_the_last_rate_stands() {
    let read = counts(100 * SECOND, 500, 5);
    assert_eq!(rates_of(&[read, read]), [None, Some(0.0)]);
    let next = counts(101 * SECOND, 700, 5);
    let stands = [None, Some(200.0), Some(200.0), Some(200.0), None];
    assert_eq!(rates_of(&[read, next, next, next, next]), stands);
    // A tenth of a second is too short to conclude that no packet came.
    let mut after = members(100, &[read]);
    after.at_ns += SECOND / 10;
    let view = between(&members(100, &[read]), &after);
    let member = &group_of(&view).members[0];
    assert!(!member.stale && member.packets_per_second.is_none());
}

#[test]
fn a_member_short_of_cpu_time_has_the_rate_of_its_own_window_and_a_mark() {
    // The member gets 20000 packets a second. It reads its counters 0.9 s before the first snapshot
    // and 0.05 s after it.
    let tenths = |tenths: u64| 100 * SECOND + tenths * SECOND / 20;
    let late = counts(tenths(0), 1000, 0);
    let next = counts(tenths(19), 1000 + 19_000, 0);
    let mut before = members(100, &[late]);
    before.at_ns = tenths(18);
    let mut after = members(101, &[next]);
    after.at_ns = tenths(38);
    let view = between(&before, &after);
    let member = &group_of(&view).members[0];
    assert_eq!(member.packets_per_second, Some(20_000.0));
    assert_eq!(member.rate_window_seconds, Some(0.95));
    assert!(!member.rate_is_rough);
    // A rate is marked if its window is much longer than the interval.
    before.at_ns = tenths(18);
    after.at_ns = tenths(20);
    let view = between(&before, &after);
    let group = group_of(&view);
    assert_eq!(group.members[0].packets_per_second, Some(20_000.0));
    assert!(group.members[0].rate_is_rough);
    assert_eq!(group.members_with_rough_rates, 1);
}

#[test]
fn packets_that_end_a_wait_came_before_the_look_too() {
    // 2000 packets a second: the member waited for a block when the first snapshot was taken, and
    // got it 5 ms later.
    let waits = Counts {
        waits: true,
        ..counts(99 * SECOND, 1000, 0)
    };
    let block = counts(100 * SECOND + SECOND / 200, 1000 + 2010, 0);
    let view = between(&members(100, &[waits]), &members(101, &[block]));
    let rate = group_of(&view).members[0].packets_per_second;
    assert_eq!(rate, Some(2000.0));
}

#[test]
fn a_rate_that_only_stands_until_the_next_reading_is_marked() {
    let mut rates = Rates::default();
    let read = [100, 101, 101].map(|second| counts(second * SECOND, second * 100, 0));
    let mut is_rough = (100..).zip(read).map(|(second, counts)| {
        let view = rates.next(members(second, &[counts]));
        group_of(&view).members[0].rate_is_rough
    });
    assert_eq!(is_rough.next(), Some(false));
    assert_eq!(is_rough.next(), Some(false));
    assert_eq!(is_rough.next(), Some(true));
}

#[test]
fn after_a_pause_the_rate_is_over_all_of_it() {
    // The kernel may have given the packets at any time during the pause, so the rate is computed
    // over the whole pause.
    let paused = counts(40 * SECOND, 1000, 0);
    let resumed = counts(101 * SECOND, 1000 + 6100, 0);
    let view = between(&members(100, &[paused]), &members(101, &[resumed]));
    let member = &group_of(&view).members[0];
    assert_eq!(member.packets_per_second, Some(100.0));
    assert!(member.rate_is_rough && member.rate_window_seconds == Some(61.0));
}

#[test]
fn shares_are_over_one_window() {
    // Both members got about the same number of packets in this second, but the second member got
    // all its packets in the first half.
    let before = [counts(100 * SECOND, 0, 0), counts(100 * SECOND, 0, 0)];
    let half = counts(100 * SECOND + SECOND / 2, 900, 0);
    let after = [counts(101 * SECOND, 1000, 0), half];
    let view = between(&members(100, &before), &members(101, &after));
    let group = group_of(&view);
    assert_eq!(group.members[1].packets_per_second, Some(1800.0));
    assert_eq!(group.members[1].share_percent, Some(50.0));
    assert_eq!(group.skew, Some(1.0));
}

#[test]
fn who_waits_at_an_empty_ring_is_not_stale() {
    let waits = Counts {
        read_taken: Some(3),
        waits: true,
        ..counts(40 * SECOND, 500, 5)
    };
    let view = between(&members(100, &[waits]), &members(101, &[waits]));
    let member = &group_of(&view).members[0];
    assert_eq!(member.packets_per_second, Some(0.0));
    assert!(!member.stale && member.backlog_packets == Some(0));
    // A member that waits again after a burst has published the whole burst, so the rate is
    // computed over the whole interval.
    let burst = Counts {
        read_ns: 100 * SECOND + SECOND / 10,
        received: 700,
        ..waits
    };
    assert_eq!(rates_of(&[waits, burst]), [None, Some(200.0)]);
    // A stopped process does not wait for packets, so its old counters are stale.
    let stopped = Counts {
        waits: false,
        ..waits
    };
    let view = between(&members(100, &[stopped]), &members(101, &[stopped]));
    assert!(group_of(&view).members[0].stale);
}

#[test]
fn without_pages_there_is_membership_only() {
    let mut before = members(100, &[counts(99 * SECOND, 1, 0)]);
    before.sockets[0].counts = None;
    before.sockets[0].has_page = false;
    let mut after = before.clone();
    after.at_ns += SECOND;
    let view = between(&before, &after);
    let group = group_of(&view);
    assert!(!group.members[0].stale && !group.members[0].ours);
    assert_eq!(group.received_packets_total, None);
    assert_eq!(group.members.len(), 1);
}

#[test]
fn placeholders_are_no_members() {
    let mut after = members(100, &[counts(99 * SECOND, 1, 0), counts(99 * SECOND, 2, 0)]);
    after.sockets[1].counts = None;
    after.sockets[1].has_page = false;
    after.sockets[1].is_placeholder = true;
    let view = Rates::default().next(after);
    let group = group_of(&view);
    assert_eq!((group.members.len(), group.members_total), (1, 1));
    assert_eq!(group.placeholders_total, 1);
    assert_eq!(group.placeholders_ring_bytes, 16 << 20);
    let rows = crate::top::table::rows(&view, 100, false);
    let row = rows.last().unwrap();
    assert!(row.text.starts_with("  placeholders (1) "), "{}", row.text);
    assert!(row.text.contains(" 16M"), "{}", row.text);
}

#[test]
fn a_first_look_has_totals_only() {
    let view = Rates::default().next(after());
    assert_eq!(view.interval_seconds, None);
    assert_eq!(view.devices[0].received_packets_per_second, None);
    assert_eq!(view.devices[0].received_packets_total, Some(40_812_345));
    assert!(
        group_of(&view)
            .members
            .iter()
            .all(|member| member.packets_per_second.is_none())
    );
}

#[test]
fn a_devices_losses_are_added_up_and_told_apart() {
    let view = between(&before(), &after());
    let eth0 = &view.devices[0];
    assert_eq!(eth0.received_packets_per_second, Some(812_345.0));
    assert_eq!(eth0.received_bits_per_second, Some(6_520_000_000.0));
    assert_eq!(eth0.lost_packets_total, Some(125));
    assert_eq!(
        (eth0.dropped_packets_total, eth0.missed_packets_total),
        (Some(120), Some(5))
    );
    assert_eq!(eth0.lost_packets_per_second, Some(30.0));
}

#[test]
fn a_member_that_nobody_reads_is_marked() {
    let at = |second: u64, received| counts(second * SECOND, received, 0);
    let unread_with = |buckets: Option<usize>, seconds: f64, is_never_read: bool, others: u64| {
        let before = members(100, &[at(100, 0), at(100, 0)]);
        let mut after = members(101, &[at(101, others), at(100, 0)]);
        after.sockets[1].unread_seconds = Some(seconds);
        after.sockets[1].is_never_read = is_never_read;
        let place = crate::top::fixture::after().sockets[0].place.unwrap();
        after.sockets[1].place = buckets.map(|buckets| Place { buckets, ..place });
        let view = between(&before, &after);
        let group = group_of(&view);
        assert!(!group.members[0].is_unread);
        assert_eq!(
            group.members_unread,
            usize::from(group.members[1].is_unread)
        );
        group.members[1].is_unread
    };
    let unread = |seconds, is_never_read, others| unread_with(None, seconds, is_never_read, others);
    assert!(!unread(4.9, true, 100) && unread(5.0, true, 100) && unread(5.0, true, 0));
    // An application that read before may wait in select(2) while no member gets packets.
    assert!(!unread(29.0, false, 100) && !unread(90.0, false, 0) && unread(30.0, false, 100));
    // A member of a steered group without buckets gets no packets, so it can lose none.
    for (seconds, is_never_read) in [(90.0, true), (90.0, false)] {
        assert!(!unread_with(Some(0), seconds, is_never_read, 100));
        assert!(unread_with(Some(1), seconds, is_never_read, 100));
    }
}
