//! Real packets go from a generator through the source `packet` and a group into members' pools.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "scene/clients.rs"]
mod clients;
#[path = "scene/devices.rs"]
mod devices;
mod scene;

use anyhow::{Context, Result};
use clients::{Client, Poller, hello};
use devices::Devices;
use fanpcap_linux::interface;
use fanpcap_linux::wait::clock::{monotonic_ns, realtime_offset_ns};
use fanpcap_poll::PoolSize;
use fanpcap_poll::message::Hello;
use fanpcap_poller::packet::{Options, PacketSource};
use fanpcap_poller::queue::{Idle, Queue};
use fanpcap_poller::{Burst, FanOut, MemberSlot, Source, SourceError};
use fanpcap_ring::Pool;
use fanpcap_testkit::await_for::await_so;
use fanpcap_testkit::netns::{on_pair, within_new};
use fanpcap_testkit::veth::ip;
use fanpcap_testkit::{Injector, traffic};
use fanpcap_wire::{FlowKey, Layers};
use scene::{admit, drain, group, share, table};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const FLOW: &str = "main = par3 (inner steer_flow) steer_link (steer_to 0)";

const SIZE_OF_POOL: PoolSize = PoolSize {
    lanes: 1,
    block_len: 256 << 10,
    blocks: 60,
};

const SLOTS: [u8; 4] = [0, 1, 2, 3];

/// The source's ring loses no packet if its thread does not get the CPU for a second: a block holds
/// the packets of at least 5 ms.
const LARGE: Options = Options {
    blocks: 256,
    retire_ms: 5,
    is_promiscuous: true,
};

/// A queue with a group of four members, and their readers.
fn four_members() -> (FanOut, Vec<Pool>) {
    let table = table(false);
    share(&table, 0, &SLOTS);
    let mut fan_out = FanOut::new(0);
    assert!(fan_out.begin(0, group(FLOW, &table)));
    let admit = |slot| admit(&mut fan_out, MemberSlot { group: 0, slot }, SIZE_OF_POOL);
    let pools = SLOTS.map(admit).into();
    (fan_out, pools)
}

/// Polls until `is_over`, and then until no more packets come.
fn poll(fan_out: &mut FanOut, source: &mut PacketSource, is_over: &AtomicBool) {
    let mut last_ns = monotonic_ns();
    loop {
        let now_ns = monotonic_ns();
        if fan_out.poll(source, now_ns, &mut |_| {}).unwrap() > 0 {
            last_ns = now_ns;
        } else if is_over.load(Ordering::Relaxed) && now_ns - last_ns > 50_000_000 {
            return;
        } else {
            thread::yield_now();
        }
    }
}

/// Reads the pools until `is_over`, and then to their ends.
fn read(pools: &mut [Pool], is_over: &AtomicBool) -> Vec<Vec<Vec<u8>>> {
    let mut all = vec![Vec::new(); pools.len()];
    let mut take = || {
        for (pool, all) in pools.iter_mut().zip(&mut all) {
            all.extend(drain(pool));
        }
    };
    while !is_over.load(Ordering::Relaxed) {
        take();
        thread::yield_now();
    }
    take();
    all
}

fn flow_of(bytes: &[u8]) -> FlowKey {
    let frame = fanpcap_poller::Packet::of(bytes).frame;
    FlowKey::of(Layers::of(&frame).ip().unwrap())
}

#[test]
#[ignore = "needs root: a network namespace, packet sockets"]
fn each_packet_comes_once_and_no_flow_is_split() {
    const FRAMES: u64 = 60_000;
    let work = || {
        let mut devices = Devices::new()?;
        let mut source = PacketSource::open(devices.ifindex, LARGE)?;
        let (mut fan_out, mut pools) = four_members();
        let (is_sent, is_polled) = (AtomicBool::new(false), AtomicBool::new(false));
        let (sent, got) = thread::scope(|scope| {
            let reader = scope.spawn(|| read(&mut pools, &is_polled));
            let poller = scope.spawn(|| poll(&mut fan_out, &mut source, &is_sent));
            let sent = devices.send(FRAMES, "60kpps");
            is_sent.store(true, Ordering::Relaxed);
            poller.join().unwrap();
            is_polled.store(true, Ordering::Relaxed);
            (sent, reader.join().unwrap())
        });
        sent?;
        let counts = fan_out.counts(0).unwrap();
        let of_source = source.counts();
        assert_eq!((of_source.received, of_source.dropped), (FRAMES, 0));
        assert_eq!(
            (counts.offered, counts.produced, counts.dropped),
            (FRAMES, FRAMES, 0)
        );
        let mut owners = HashMap::new();
        for (member, frames) in got.iter().enumerate() {
            assert!(
                frames.len() as u64 > FRAMES / 10,
                "member {member} has a share"
            );
            for bytes in frames {
                let owner = *owners.entry(flow_of(bytes)).or_insert(member);
                assert_eq!(owner, member, "a flow is split");
            }
        }
        devices.check(FRAMES, got.iter().flatten().map(|it| &it[..]));
        Ok(())
    };
    within_new(work).unwrap();
}

/// The same with the whole poller, whose queue sleeps while no packets come. A member dies while
/// packets come, and another member reads its pool to the end.
#[test]
#[ignore = "needs root: a network namespace, packet sockets"]
fn a_poller_on_a_real_device_loses_no_packet_when_a_member_dies() {
    const FRAMES: u64 = 30_000;
    let work = || {
        let mut devices = Devices::new()?;
        let source = Box::new(PacketSource::open(devices.ifindex, LARGE)?);
        let poller = Poller::of_queues(vec![Queue::start(source, Idle::Sleep, || {})?]);
        let memory = Some(32 << 20);
        let hello = Hello { memory, ..hello() };
        let mut members: Vec<Client> = (0..3).map(|_| poller.member(&hello)).collect();
        thread::scope(|scope| {
            let sending = scope.spawn(|| devices.send(FRAMES, "60kpps"));
            await_so("packets", || {
                members[1].read();
                members[1].got.len() > 1000
            });
            let dead = members.remove(0);
            assert!(dead.got.is_empty(), "it has read nothing");
            drop(dead);
            sending.join().unwrap()
        })?;
        devices.await_all(FRAMES, &mut members);
        let counts = poller.counts(Some(5)).unwrap();
        assert_eq!(
            (counts.offered, counts.produced, counts.no_member),
            (FRAMES, FRAMES, 0)
        );
        Ok(())
    };
    within_new(work).unwrap();
}

/// Takes bursts until a packet of the test has come, and passes that packet to `look`.
fn await_packet<T>(
    source: &mut PacketSource,
    mut look: impl FnMut(&fanpcap_poller::Packet<'_>) -> Option<T>,
) -> T {
    let mut found = None;
    await_so("a packet", || {
        let mut burst = Burst::new();
        source.burst(&mut burst).unwrap();
        found = found
            .take()
            .or_else(|| burst.packets().iter().find_map(&mut look));
        source.release();
        found.is_some()
    });
    found.unwrap()
}

#[test]
#[ignore = "needs root: a network namespace, packet sockets"]
fn a_packet_has_its_time_its_direction_and_its_tag() {
    on_pair(|ifindex| {
        let mut source = PacketSource::open(ifindex, Options::default()).unwrap();
        assert_eq!(source.queue(), 0);
        let flow = traffic::flows(1, 1)[0];
        let frame = |number, vlan: u8| {
            let frame = traffic::frame(flow, traffic::Direction::Request, number, 40);
            let mut bytes = frame.unwrap().bytes;
            bytes.splice(12..12, [0x81, 0, 0, vlan]);
            bytes
        };
        let numbered = |number| {
            move |packet: &fanpcap_poller::Packet<'_>| {
                let is_it = traffic::sequence_of(packet.frame.bytes) == Some(number);
                is_it.then_some((
                    packet.tag(),
                    packet.is_sent,
                    packet.stamp_ns,
                    packet.wire_len,
                ))
            }
        };
        let before_ns = monotonic_ns();
        let received = frame(1, 5);
        Injector::open("va").unwrap().send(&received).unwrap();
        let (tag, is_sent, stamp_ns, wire_len) = await_packet(&mut source, numbered(1));
        assert_eq!((tag.map(|tag| tag.id()), is_sent), (Some(5), false));
        assert_eq!(
            wire_len as usize + 4,
            received.len(),
            "the tag is beside the frame"
        );
        // The two clocks are compared within some microseconds.
        let (from, to) = (before_ns - 1_000_000, monotonic_ns() + 1_000_000);
        assert!(
            (from..to).contains(&stamp_ns.unwrap()),
            "{stamp_ns:?} in {from}..{to}"
        );
        assert!(
            realtime_offset_ns() > to,
            "the time of day is another clock"
        );
        Injector::open("vb").unwrap().send(&frame(2, 6)).unwrap();
        let (_, is_sent, ..) = await_packet(&mut source, numbered(2));
        assert!(is_sent, "the host sends it");
        assert!(source.transmit(&frame(3, 7)).unwrap());
        let mut other = PacketSource::open(interface::index("va").unwrap(), Options::default());
        let other = other.as_mut().unwrap();
        assert!(source.transmit(&frame(4, 7)).unwrap());
        let (_, is_sent, ..) = await_packet(other, numbered(4));
        assert!(!is_sent);
    });
}

#[test]
#[ignore = "needs root: a network namespace, packet sockets"]
fn a_source_tells_that_its_ring_fills() {
    on_pair(|ifindex| {
        let options = Options {
            blocks: 4,
            ..Options::default()
        };
        let mut source = PacketSource::open(ifindex, options).unwrap();
        let sender = Injector::open("va").unwrap();
        let frame = [7; 1400];
        for _ in 0..2 {
            assert!(!source.has_filled(1));
            // A block that is not full is handed over after a millisecond, too.
            await_so("packets that wait", || {
                (0..50).for_each(|_| sender.send(&frame).unwrap());
                source.has_filled(3)
            });
            await_so("an empty ring", || {
                let mut burst = Burst::new();
                source.burst(&mut burst).unwrap();
                let is_empty = burst.packets().is_empty();
                source.release();
                is_empty
            });
        }
    });
}

#[test]
#[ignore = "needs root: a network namespace, packet sockets"]
fn a_device_that_is_down_or_gone_is_told() {
    on_pair(|ifindex| {
        let mut source = PacketSource::open(ifindex, Options::default()).unwrap();
        source.check().unwrap();
        ip("link set vb down").unwrap();
        for _ in 0..2 {
            assert!(matches!(source.check(), Err(SourceError::Down)));
        }
        ip("link set vb up").unwrap();
        source.check().unwrap();
        ip("link del vb").unwrap();
        await_so("the end", || {
            matches!(source.check(), Err(SourceError::Gone))
        });
        assert!(PacketSource::open(ifindex, Options::default()).is_err());
    });
}

#[test]
#[ignore = "needs root: a network namespace, packet sockets"]
fn a_device_without_ethernet_is_refused_and_lo_shows_packets_once() {
    let work = || -> Result<()> {
        ip("tuntap add tunnel mode tun")?;
        let index = |name| interface::index(name).context("no device");
        let refused = PacketSource::open(index("tunnel")?, Options::default()).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
        let no_ring = Options {
            blocks: 0,
            ..Options::default()
        };
        assert!(PacketSource::open(index("lo")?, no_ring).is_err());
        let mut source = PacketSource::open(index("lo")?, Options::default())?;
        let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
        socket.send_to(b"lo", socket.local_addr()?)?;
        await_packet(&mut source, |packet| (!packet.is_sent).then_some(()));
        let counts = source.counts();
        assert_eq!(counts.received, 2, "the kernel shows it twice");
        assert_eq!((counts.skipped, counts.dropped, counts.failed), (1, 0, 0));
        Ok(())
    };
    within_new(work).unwrap();
}
