//! The source `zc` by the stand-in for PF_RING's library. No test has PF_RING.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use fanpcap_linux::netlink::link;
use fanpcap_linux::wait::clock;
use fanpcap_poller::kind::SourceKind;
use fanpcap_poller::{Burst, Source, zc};
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::netns::on_pair;
use fanpcap_testkit::pfring::is_again;
use fanpcap_testkit::traffic::{self, sequence_of};
use fanpcap_testkit::{Injector, Transport};

const PACKETS: u64 = 500;

fn frames() -> Vec<traffic::Frame> {
    let flows = traffic::flows(1, 40).into_iter();
    let udp: Vec<_> = flows.filter(|it| it.transport == Transport::Udp).collect();
    traffic::frames(1, &udp, 0..PACKETS).unwrap()
}

/// Adds the numbers of the packets that have come to each source, until all sources together have
/// `count`.
fn take(sources: &mut [Box<dyn Source + Send>], numbers: &mut [Vec<u64>], count: usize) {
    await_so("all packets", || {
        for (source, numbers) in sources.iter_mut().zip(&mut *numbers) {
            let mut burst = Burst::new();
            source.burst(&mut burst).unwrap();
            for packet in burst.packets() {
                assert_eq!(packet.wire_len as usize, packet.frame.bytes.len());
                let age_ns = clock::monotonic_ns().abs_diff(packet.stamp_ns.unwrap());
                assert!(age_ns < 60_000_000_000, "{age_ns}");
                numbers.extend(sequence_of(packet.frame.bytes));
            }
            source.release();
        }
        numbers.iter().map(Vec::len).sum::<usize>() == count
    });
}

/// Each packet comes once, and in the order of its queue.
fn check(ifindex: u32, queues: usize) {
    let link = link::get(ifindex).unwrap();
    let opened = SourceKind::Zc.open(&link, 1).unwrap();
    let mut sources = opened.sources;
    let of_queues: Vec<u16> = sources.iter().map(|it| it.queue()).collect();
    assert_eq!(
        of_queues,
        (0..u16::try_from(queues).unwrap()).collect::<Vec<_>>()
    );
    let injector = Injector::open("va").unwrap();
    let frames = frames();
    let (mut numbers, mut sent) = (vec![Vec::new(); sources.len()], 0);
    // The kernel drops packets if too many wait for a CPU (net.core.netdev_max_backlog).
    for part in frames.chunks(50) {
        for frame in part {
            injector.send(&frame.bytes).unwrap();
        }
        sent += part.len();
        take(&mut sources, &mut numbers, sent);
    }
    assert!(numbers.iter().all(|it| it.is_sorted() && !it.is_empty()));
    let mut all = numbers.concat();
    all.sort_unstable();
    assert_eq!(all, (0..PACKETS).collect::<Vec<_>>());
    let counts: Vec<_> = sources.iter_mut().map(|it| it.counts()).collect();
    let received: u64 = counts.iter().map(|it| it.received).sum();
    assert_eq!(
        (received, counts[0].dropped, counts[0].failed),
        (PACKETS, 0, 0)
    );
    assert!(sources[0].waits_on().is_none());
    assert!(sources[0].transmit(&frames[0].bytes).unwrap());
    sources[0].check().unwrap();
}

#[test]
#[ignore = "needs root: packet sockets, a network namespace"]
fn packets_come_in_bursts() {
    if is_again("packets_come_in_bursts", &[]).unwrap() {
        on_pair(|ifindex| check(ifindex, 1));
    }
}

#[test]
#[ignore = "needs root: packet sockets, a network namespace"]
fn packets_come_one_at_a_time_where_there_are_no_bursts() {
    let variables = [("STANDIN_NO_BURSTS", "1")];
    let test = "packets_come_one_at_a_time_where_there_are_no_bursts";
    if is_again(test, &variables).unwrap() {
        on_pair(|ifindex| check(ifindex, 1));
    }
}

#[test]
#[ignore = "needs root: packet sockets, a network namespace"]
fn each_receive_queue_is_a_source() {
    let variables = [("STANDIN_QUEUES", "3")];
    if is_again("each_receive_queue_is_a_source", &variables).unwrap() {
        on_pair(|ifindex| check(ifindex, 3));
    }
}

#[test]
#[ignore = "needs root: packet sockets, a network namespace"]
fn a_device_that_pf_ring_does_not_open_is_refused_with_the_reason() {
    // EINVAL. With ENODEV the library also says that the kernel's module is missing.
    let variables = [("STANDIN_OPEN_ERROR", "22")];
    let test = "a_device_that_pf_ring_does_not_open_is_refused_with_the_reason";
    if is_again(test, &variables).unwrap() {
        on_pair(|ifindex| {
            let link = link::get(ifindex).unwrap();
            let refused = SourceKind::Zc
                .open(&link, 1)
                .map(drop)
                .unwrap_err()
                .to_string();
            assert!(
                refused.contains("the device needs a ZC driver of ntop"),
                "{refused}"
            );
            assert!(zc::open(ifindex, "vb").is_err());
        });
    }
}
