//! Tests the port of a pool without a reader.

use super::*;
use crate::test_group::{DeviceRegistry, Group, frame, next, reader};
use fanpcap_linux::interface;
use fanpcap_linux::packet::Address;
use fanpcap_linux::process::cpu;
use fanpcap_linux::wait::events;
use fanpcap_ring::pool::layout::{SHORT, last_offset};
use fanpcap_testkit::netns::on_pair;
use fanpcap_testkit::veth::ip;
use std::os::fd::OwnedFd;

/// Opens a silent socket on a device that is up. The socket is never closed.
fn silent(device: &str) -> BorrowedFd<'static> {
    let socket = packet::open().unwrap();
    let address = Address {
        ifindex: interface::index(device).unwrap(),
        protocol: 6,
    };
    packet::bind(socket.as_fd(), address).unwrap();
    let socket: &'static OwnedFd = Box::leak(Box::new(socket));
    socket.as_fd()
}

/// Bytes of a record with a frame of 60 bytes.
const RECORD: u64 = 96;

fn is_readable(port: &dyn Port) -> bool {
    let limit = Some(Duration::from_millis(20));
    events::poll(&[port.waits_on()], limit).unwrap()[0]
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn the_descriptor_is_readable_when_so_many_bytes_have_come() {
    on_pair(|_| {
        // The reader is woken when one CPU's lane has so many bytes more.
        cpu::pin(cpu::current_cpu().unwrap()).unwrap();
        let group = Group::of("main = steer_flow", DeviceRegistry::that_steals().maps());
        let (maps, mut pool) = group.pool(96);
        let port = PoolPort::new(silent("vb"), &group.program, 0, &maps).unwrap();
        let outer = Epoll::new().unwrap();
        outer.add(port.waits_on(), true).unwrap();
        let mut read = || {
            let count = std::iter::from_fn(|| next(&mut pool)).count();
            pool.release();
            count
        };
        let frame = frame(60);
        group.run(&frame, 1);
        assert!(
            is_readable(&port),
            "the first packet did not wake the reader"
        );
        assert!(
            !port.arm(1),
            "the port was armed although a packet is unread"
        );
        assert_eq!(read(), 1);
        assert!(port.arm(1));
        assert!(!is_readable(&port));
        group.run(&frame, 1);
        assert!(is_readable(&port) && outer.is_ready().unwrap());
        assert_eq!(read(), 1);
        port.bell.clear();
        group.run(&frame, 1);
        assert!(
            !is_readable(&port),
            "a packet woke the reader, which waits for none"
        );
        // In each round, some packets arrive before the call of `arm` and some after it.
        for _ in 0..3 {
            group.run(&frame, 5);
            assert!(port.arm(10 * RECORD));
            group.run(&frame, 9);
            assert!(!is_readable(&port) && !outer.is_ready().unwrap());
            group.run(&frame, 1);
            assert!(is_readable(&port) && outer.is_ready().unwrap());
            assert!(read() >= 15);
        }
        assert!(port.arm(1) && !is_readable(&port));
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_packet_without_room_wakes_a_reader_that_rests_and_no_other() {
    on_pair(|_| {
        let cpus = cpu::cpus().unwrap();
        let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
        cpu::pin(first).unwrap();
        let group = Group::of("main = steer_flow", DeviceRegistry::that_steals().maps());
        let (maps, mut pool) = group.pool(96);
        let port = PoolPort::new(silent("vb"), &group.program, 0, &maps).unwrap();
        let frame = frame(60);
        group.run(&frame, 1);
        assert!(port.rest());
        assert!(!is_readable(&port), "what came before the rest ended it");
        group.run(&frame, 100);
        assert!(!is_readable(&port), "a record ended the rest");
        group.run(&frame, 100_000);
        assert!(group.program.slot_counts(0).dropped > 0);
        assert!(is_readable(&port), "packets were dropped during the rest");
        port.bell.clear();
        group.run(&frame, 10);
        assert!(!is_readable(&port), "the reader is awake");
        // The other CPU's first packet has no room. It rings, so its first record does not.
        cpu::pin(last).unwrap();
        group.run(&frame, 1);
        while next(&mut pool).is_some() {}
        pool.release();
        assert!(port.arm(1) && !is_readable(&port));
        group.run(&frame, 1);
        assert!(is_readable(&port), "the lane was not armed");
    });
}

/// Fills the pool from all CPUs at once, until each CPU has dropped packets.
fn fill(group: &Group, port: &PoolPort) {
    let frame = frame(1514);
    let dropped = |lane| {
        port.program
            .rows
            .of(0)
            .nth(lane)
            .unwrap()
            .read(row::DROPPED)
    };
    std::thread::scope(|scope| {
        for cpu in cpu::cpus().unwrap() {
            let frame = &frame;
            scope.spawn(move || {
                cpu::pin(cpu).unwrap();
                let lane = cpu % port.words.lanes();
                // Some packets may be dropped because several CPUs want the same block.
                let is_full = || {
                    let before = dropped(lane);
                    (0..100).for_each(|_| _ = group.run(frame, 1));
                    dropped(lane) == before + 100
                };
                while !is_full() {}
            });
        }
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn no_reader_sleeps_on_while_packets_of_all_cpus_are_dropped() {
    on_pair(|_| {
        let group = Group::of("main = steer_flow", DeviceRegistry::that_steals().maps());
        let shape = group.program.shape;
        let maps = MemberPool::create(None, shape).unwrap();
        let mut pool = reader(&maps);
        group.program.put(0, &maps, 65_535, 0, false).unwrap();
        let port = PoolPort::new(silent("vb"), &group.program, 0, &maps).unwrap();
        let record = 24 + 1514 + 14;
        let in_block = last_offset(shape.block_len(), SHORT) / record + 1;
        let blocks = maps.array.size() as u64 / u64::from(shape.block_len()) - 1;
        let mut before = group.program.slot_counts(0);
        // Waits that no record ends: for more bytes than the pool has, and rests.
        let far = || port.arm(1 << 40);
        let sleeps: [&dyn Fn() -> bool; 4] = [&far, &|| port.rest(), &|| port.rest(), &far];
        for sleep in sleeps {
            assert!(sleep() && !is_readable(&port));
            fill(&group, &port);
            assert!(is_readable(&port), "packets were dropped during the wait");
            let counts = group.program.slot_counts(0);
            let records = counts.produced - before.produced;
            assert_eq!(records, blocks * u64::from(in_block), "all blocks are full");
            let read = std::iter::from_fn(|| next(&mut pool)).count();
            pool.release();
            assert!(!pool.open(), "nothing is left");
            assert_eq!(read as u64, records);
            before = counts;
        }
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn each_packet_is_counted_once_for_the_member_that_it_came_to() {
    on_pair(|_| {
        let group = Group::of("main = steer_flow", DeviceRegistry::that_steals().maps());
        let (first, _) = group.pool(96);
        group.run(&frame(60), 5);
        drop(first);
        let (maps, mut pool) = group.pool(96);
        group.run(&frame(60), 2);
        let port = PoolPort::new(silent("vb"), &group.program, 0, &maps).unwrap();
        let take = || {
            let PortStatistics { received, dropped } = port.take_statistics().unwrap();
            (received, dropped)
        };
        assert_eq!(take(), (2, 0));
        assert_eq!(take(), (0, 0));
        group.run(&frame(60), 100_000);
        let (received, dropped) = take();
        assert_eq!(received, 100_000);
        let read = std::iter::from_fn(|| next(&mut pool)).count() as u64;
        assert_eq!(read, 100_002 - dropped);
        assert!(dropped > 0);
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn a_device_that_goes_down_is_told() {
    on_pair(|_| {
        let group = Group::of("main = steer_flow", DeviceRegistry::that_steals().maps());
        let (maps, _pool) = group.pool(96);
        let port = PoolPort::new(silent("vb"), &group.program, 0, &maps).unwrap();
        assert_eq!(port.check(POLLIN).unwrap(), LinkState::Up);
        assert_eq!(port.link().unwrap(), LinkState::Up);
        assert!(!is_readable(&port));
        ip("link set vb down").unwrap();
        assert!(is_readable(&port));
        assert_eq!(port.check(POLLIN).unwrap(), LinkState::Down);
        assert_eq!(port.link().unwrap(), LinkState::Down);
        assert!(
            !is_readable(&port),
            "the port reports the same change twice"
        );
        ip("link set vb up").unwrap();
        assert_eq!(port.link().unwrap(), LinkState::Up);
        ip("link del vb").unwrap();
        assert!(is_readable(&port));
        assert_eq!(port.check(POLLIN).unwrap(), LinkState::Down);
        assert!(port.link().unwrap_err().to_string().contains("disappeared"));
    });
}

#[test]
#[ignore = "needs root: eBPF, a network namespace"]
fn the_input_is_one_ring_with_its_port() {
    on_pair(|_| {
        let group = Group::of("main = steer_flow", DeviceRegistry::that_steals().maps());
        let (maps, _) = group.pool(96);
        let timeout = Some(Duration::from_millis(7));
        let member = PoolOfMember {
            program: group.program,
            pool: maps,
            snaplen: 96,
            sent: true,
        };
        let input = member.input(0, silent("vb"), timeout).unwrap();
        assert!(matches!(input.ring, Ring::Pool(_)));
        assert!(!input.port.is_socket());
        assert_eq!(input.timeout, timeout);
    });
}
