//! Groups whose users may have some of the packets only.

use super::{FLOW, SIZE_OF_POOL, frames, is_account_even, numbers, of_group, source};
use crate::scene::{admit, group, poll_all, share, table};
use fanpcap_bpf::Classic;
use fanpcap_buckets::layout::{BUCKETS, LOADS};
use fanpcap_linux::memory::Memory;
use fanpcap_poller::{DeviceFilter, FanOut, Filter, MemberSlot, NewGroup};
use fanpcap_ring::Layout as _;
use fanpcap_steer::{Balance, GroupOptions};
use fanpcap_testkit::Transport;
use fanpcap_testkit::traffic::Frame;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn filter(expression: &str) -> Option<DeviceFilter> {
    let filter = Filter {
        text: expression.to_owned(),
        code: fanpcap_pcap::compile_expression(expression).unwrap(),
    };
    Some(DeviceFilter {
        filter: Arc::new(filter),
        ifindex: 7,
    })
}

fn of(frames: &[Frame], is_it: impl Fn(&Frame) -> bool) -> Vec<u64> {
    let found = frames.iter().filter(|it| is_it(it));
    found.map(|it| it.sequence).collect()
}

fn is_udp(frame: &Frame) -> bool {
    frame.flow.transport == Transport::Udp
}

/// Each group has its own filter: one copies packets to all members, one shares them, one has all.
#[test]
fn each_group_gets_what_its_filter_lets_through() {
    let mut fan_out = FanOut::new(0);
    let programs = [
        (1, "main = ip", filter("udp")),
        (2, FLOW, filter("tcp")),
        (3, FLOW, None),
    ];
    let mut pools = Vec::new();
    for (number, (user, program, filter)) in (0..).zip(programs) {
        let table = table(false);
        share(&table, 0, &[0, 1]);
        let new = NewGroup {
            user,
            filter,
            ..group(program, &table)
        };
        assert!(fan_out.begin(number, new));
        let at = |slot| MemberSlot {
            group: number,
            slot,
        };
        pools.push([0, 1].map(|slot| admit(&mut fan_out, at(slot), SIZE_OF_POOL)));
    }
    let frames = frames(400);
    poll_all(&mut fan_out, &mut source(&frames));
    let found: Vec<[Vec<u64>; 2]> = pools
        .into_iter()
        .map(|of_group| of_group.map(|mut pool| numbers(&mut pool)))
        .collect();
    let copied = of(&frames, |it| is_udp(it) && it.flow.client.is_ipv4());
    assert_eq!(found[0], [copied.clone(), copied.clone()]);
    let tcp = of(&frames, |it| !is_udp(it));
    for (of_group, expected) in [(1, &tcp), (2, &of(&frames, |_| true))] {
        let mut all = found[of_group].concat();
        all.sort_unstable();
        assert_eq!(all, *expected, "{of_group}");
    }
    let counts = [0, 1, 2].map(|number| fan_out.counts(number).unwrap());
    assert!(
        counts
            .iter()
            .all(|it| it.offered == 400 && is_account_even(*it))
    );
    let udp = 400 - tcp.len() as u64;
    assert_eq!(counts.map(|it| it.not_allowed), [400 - udp, udp, 0]);
    let copied = copied.len() as u64;
    assert_eq!(counts.map(|it| it.nowhere), [udp - copied, 0, 0]);
    assert_eq!(counts[0].again, copied);
}

/// Otherwise a user could learn from counters and shares what it may not see.
#[test]
fn nothing_in_a_group_depends_on_packets_that_it_may_not_have() {
    let table = table(false);
    share(&table, 0, &[0]);
    let mut fan_out = FanOut::new(0);
    let new = NewGroup {
        options: GroupOptions::balanced(Balance::Idle),
        filter: filter("udp"),
        ..group("main = inc 1 >-> steer_flow", &table)
    };
    assert!(fan_out.begin(3, new));
    let mut pool = admit(&mut fan_out, of_group(0), SIZE_OF_POOL);
    let frames = frames(400);
    poll_all(&mut fan_out, &mut source(&frames));
    let udp = of(&frames, is_udp);
    assert_eq!(numbers(&mut pool), udp);
    assert_eq!(loads(&table), udp.len() as u64);
    let steering = fan_out.steering(3).unwrap();
    assert_eq!(steering.counters()[1], udp.len() as u64);
}

/// The sum of the loads of all buckets.
fn loads(table: &Memory) -> u64 {
    let loads = table.words(LOADS, BUCKETS).unwrap();
    loads.iter().map(|it| it.load(Ordering::Relaxed)).sum()
}

/// A filter of a policy cuts no packet, but the writer must not depend on this.
#[test]
fn a_frame_that_the_filter_cuts_has_its_length_on_the_wire() {
    let table = table(false);
    share(&table, 0, &[0]);
    let mut fan_out = FanOut::new(0);
    let filter = Filter {
        text: String::new(),
        code: vec![Classic::keep(40)],
    };
    let new = NewGroup {
        filter: Some(DeviceFilter {
            filter: Arc::new(filter),
            ifindex: 7,
        }),
        ..group(FLOW, &table)
    };
    assert!(fan_out.begin(3, new));
    let mut pool = admit(&mut fan_out, of_group(0), SIZE_OF_POOL);
    let frames = frames(20);
    poll_all(&mut fan_out, &mut source(&frames));
    let mut lens = Vec::new();
    while pool.open() {
        while let Some(frame) = pool.next_frame().unwrap() {
            lens.push((frame.data().len(), frame.wire_len() as usize));
        }
        pool.release();
    }
    let expected: Vec<_> = frames.iter().map(|it| (40, it.bytes.len())).collect();
    assert_eq!(lens, expected);
}
