//! Tests the way of packets from nodes' shippers to files, over loopback.

use std::fs;
use std::fs::File;
use std::net::UdpSocket;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_cluster::control::{Key, Keys};
use fanpcap_cluster::record::Record;
use fanpcap_cluster::{NodeId, Revision};
use fanpcap_testkit::Scratch;
use fanpcap_testkit::await_for::{LIMIT, within};
use fanpcap_testkit::loopback::free_address;
use pcap_file::pcapng::{Block, PcapNgReader};

mod dicap;
mod limits;
mod tls;
mod strangers;

use super::refusal::Reason;
use super::*;
use crate::keyring::Keyring;
use crate::shipping::{RecordTransport, Shipper, ShipperSettings};
use crate::tls::Tls;

fn now() -> u64 {
    Clock::start().now()
}

fn analyzer_loop(
    listen: SocketAddr,
    keyring: &Arc<Keyring>,
    directory: Option<&Path>,
    bytes: u64,
) -> AnalyzerLoop {
    AnalyzerLoop::open(&settings(listen, keyring, directory, bytes)).unwrap()
}

/// The settings of an analyzer in which a record waits for a fifth of a second before it is
/// delivered.
fn settings<'a>(
    listen: SocketAddr,
    keyring: &'a Arc<Keyring>,
    directory: Option<&'a Path>,
    bytes: u64,
) -> AnalyzerLoopSettings<'a> {
    let second = 1_000_000_000;
    AnalyzerLoopSettings {
        listen,
        part: Part::WHOLE,
        keyring,
        clock: Clock::start(),
        directory,
        rotation: Rotation {
            bytes,
            time: 3600 * second,
            keep: Retention {
                files: Some(3),
                ..Retention::default()
            },
            compress: false,
        },
        analyzer: AnalyzerSettings {
            cluster: 1,
            hold: second / 5,
            skew: second / 20,
            most_held: 256 << 20,
            seed: 1,
            begin: now(),
        },
        analyzed: true,
        offline: 15 * second,
        dicap_port: None,
    }
}

fn shipper(
    node: u32,
    transport: RecordTransport,
    to: SocketAddr,
    keyring: &Arc<Keyring>,
) -> Shipper {
    let settings = ShipperSettings {
        cluster: 1,
        node: NodeId(node),
        boot: 1,
        session: 1,
        link: 1,
        transport,
    };
    let mut shipper = Shipper::new(settings, Arc::clone(keyring));
    shipper.follow(&[to]).unwrap();
    shipper
}

/// A keyring with a key. If `FANPCAP_OPEN` is set, the keyring is empty, so that a measurement
/// without TLS is possible.
fn keyring() -> Arc<Keyring> {
    let is_secret = std::env::var_os("FANPCAP_OPEN").is_none();
    ring(is_secret.then_some(1))
}

/// A keyring with this key.
fn ring(key: Option<u8>) -> Arc<Keyring> {
    Arc::new(Keyring::new(key.map(|key| tls_of(key, None))))
}

/// TLS credentials with this key, which also accept the other key.
fn tls_of(key: u8, other: Option<u8>) -> Tls {
    let of = |byte| Key::new(vec![byte; 32]).unwrap();
    let keys = Keys {
        current: of(key),
        other: other.map(of),
    };
    Tls::of_keys(&keys).unwrap()
}

/// The packets of all files in a directory, and the number of files.
fn packets(directory: &Path) -> (Vec<Vec<u8>>, usize) {
    let mut paths: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut packets = Vec::new();
    for path in &paths {
        let mut reader = PcapNgReader::new(File::open(path).unwrap()).unwrap();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap() {
                packets.push(packet.data.into_owned());
            }
        }
    }
    (packets, paths.len())
}

#[test]
fn two_nodes_records_come_to_one_file_each_packet_once() {
    let scratch = Scratch::new().unwrap();
    let directory = scratch.file("records");
    let listen = free_address();
    let keyring = keyring();
    let mut analyzer_loop = analyzer_loop(listen, &keyring, Some(&directory), 1 << 30);
    let mut nodes = [
        shipper(1, RecordTransport::Tcp, listen, &keyring),
        shipper(2, RecordTransport::Tcp, listen, &keyring),
    ];
    let begin = now();
    for number in 0..20_000u32 {
        // In the first half, the nodes capture packets in turn. In the second half, both nodes
        // capture each packet.
        let marked = number >= 10_000;
        for (at, node) in (0u32..).zip(&mut nodes) {
            if marked || number % 2 == at {
                let captured = number.to_be_bytes();
                let stamp = begin + u64::from(number) * 100;
                let record = Record {
                    stamp,
                    wire_length: 60,
                    bucket: 7,
                    marked,
                    captured: &captured,
                };
                node.push(Revision(1), &record);
            }
        }
    }
    let closing: Vec<_> = nodes
        .into_iter()
        .map(|node| thread::spawn(move || node.close()))
        .collect();
    let until = Instant::now() + LIMIT;
    while closing.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
        analyzer_loop.work();
    }
    let status = analyzer_loop.close();
    assert_eq!(status.counters.received, 30_000);
    assert_eq!(status.counters.doubles, 10_000);
    assert_eq!(
        (
            status.written,
            status.unwritten,
            status.counters.export_lost
        ),
        (20_000, 0, 0)
    );
    let (packets, files) = packets(&directory);
    assert_eq!(files, 1);
    let numbers: Vec<_> = (0..20_000u32)
        .map(|number| number.to_be_bytes().to_vec())
        .collect();
    assert!(
        packets == numbers,
        "{} packets, or out of order",
        packets.len()
    );
    for thread in closing {
        let shipped = thread.join().unwrap();
        assert_eq!((shipped.lost, shipped.sent), (0, 15_000));
    }
}

#[test]
fn files_rotate_and_the_oldest_go() {
    let scratch = Scratch::new().unwrap();
    let directory = scratch.file("records");
    let listen = free_address();
    let keyring = keyring();
    let mut analyzer_loop = analyzer_loop(listen, &keyring, Some(&directory), 1000);
    let mut node = shipper(1, RecordTransport::Tcp, listen, &keyring);
    let until = Instant::now() + LIMIT;
    let mut number = 0u32;
    while analyzer_loop.close().written < 200 && Instant::now() < until {
        for _ in 0..20 {
            let captured = number.to_be_bytes();
            let record = Record {
                stamp: now(),
                wire_length: 60,
                bucket: 7,
                marked: false,
                captured: &captured,
            };
            node.push(Revision(1), &record);
            number += 1;
        }
        node.flush(Revision(1), now());
        analyzer_loop.work();
    }
    let (packets, files) = packets(&directory);
    assert_eq!(files, 3);
    assert!(!packets.is_empty() && packets.len() < 200);
}

/// In a release build with `FANPCAP_HEADERS=20000000`, this test measures how many headers are
/// shipped a second. Set `FANPCAP_RATE`, the headers sent a second, as high as possible without
/// loss.
#[test]
fn headers_a_second_over_tcp() {
    headers_a_second(free_address(), &keyring());
}

fn headers_a_second(listen: SocketAddr, keyring: &Arc<Keyring>) {
    let mut settings = settings(listen, keyring, None, 1 << 30);
    // As with the default settings, records wait for a second and are then acknowledged.
    settings.analyzer.hold = 1_000_000_000;
    settings.analyzer.most_held = 512 << 20;
    let mut analyzer_loop = AnalyzerLoop::open(&settings).unwrap();
    let mut node = shipper(1, RecordTransport::Tcp, listen, keyring);
    let number = |name: &str, default: u64| {
        let text = std::env::var(name).ok();
        text.map_or(default, |text| text.parse().unwrap())
    };
    let (count, rate) = (
        number("FANPCAP_HEADERS", 200_000),
        number("FANPCAP_RATE", 400_000),
    );
    let sender = thread::spawn(move || {
        let captured = [0x55; 52];
        let (begin, started) = (now(), Instant::now());
        for number in 0..count {
            let bucket = u16::try_from(number % 4096).unwrap();
            let stamp = begin + number * 1_000_000_000 / rate;
            let record = Record {
                stamp,
                wire_length: 60,
                bucket,
                marked: false,
                captured: &captured,
            };
            node.push(Revision(1), &record);
            while number % 512 == 0 && now() < stamp {
                thread::yield_now();
            }
        }
        let took = started.elapsed();
        (node.close(), took)
    });
    while !sender.is_finished() {
        analyzer_loop.work();
    }
    let (shipped, took) = sender.join().unwrap();
    let status = analyzer_loop.close();
    println!(
        "{shipped:?}, {:?}: {:.2} M headers/s",
        status.counters,
        count as f64 / took.as_secs_f64() / 1e6
    );
    assert_eq!(shipped.lost + status.counters.export_lost, 0);
    assert_eq!(status.counters.delivered, count);
}

/// Lets the analyzer work until `done` returns `true`. Returns the last status.
fn work_until(analyzer_loop: &mut AnalyzerLoop, done: impl Fn(&Status) -> bool) -> Status {
    let until = Instant::now() + LIMIT;
    loop {
        analyzer_loop.work();
        let status = analyzer_loop.close();
        if done(&status) || Instant::now() > until {
            return status;
        }
    }
}

fn refused(status: &Status, reason: Reason) -> u64 {
    status.refusals[reason as usize].1
}

fn ship(node: &mut Shipper, count: u32) {
    for number in 0..count {
        let record = Record {
            stamp: now(),
            wire_length: 60,
            bucket: 7,
            marked: false,
            captured: &number.to_be_bytes(),
        };
        node.push(Revision(1), &record);
    }
    node.flush(Revision(1), now());
}

/// Closes the shippers, and returns how many records each shipper has sent and lost.
fn close(analyzer_loop: &mut AnalyzerLoop, nodes: Vec<Shipper>) -> Vec<(u64, u64)> {
    let closing = nodes
        .into_iter()
        .map(|node| thread::spawn(move || node.close()));
    let closing: Vec<_> = closing.collect();
    while closing.iter().any(|thread| !thread.is_finished()) {
        analyzer_loop.work();
    }
    let shipped = closing.into_iter().map(|thread| thread.join().unwrap());
    shipped.map(|it| (it.sent, it.lost)).collect()
}

/// Lets the analyzer work until the shipper's error contains these words.
fn await_trouble(analyzer_loop: &mut AnalyzerLoop, node: &Shipper, words: &str) {
    let until = Instant::now() + LIMIT;
    while !node.trouble().contains(words) {
        assert!(Instant::now() < until, "{words}: {:?}", node.trouble());
        analyzer_loop.work();
    }
}

#[test]
fn strangers_are_refused_and_a_new_key_is_taken() {
    let listen = free_address();
    let keyring = keyring();
    let mut analyzer_loop = analyzer_loop(listen, &keyring, None, 1 << 30);
    let rings = [ring(None), ring(Some(2))];
    let nodes = (1..3).zip(&rings).map(|(node, ring)| {
        let mut stranger = shipper(node, RecordTransport::Tcp, listen, ring);
        ship(&mut stranger, 10);
        stranger
    });
    let nodes: Vec<Shipper> = nodes.collect();
    await_trouble(&mut analyzer_loop, &nodes[0], "closed the connection");
    await_trouble(
        &mut analyzer_loop,
        &nodes[1],
        "it has another key: compare 'key_file'",
    );
    let status = work_until(&mut analyzer_loop, |status| {
        refused(status, Reason::Key) > 1
    });
    assert!(refused(&status, Reason::Key) > 1, "{status:?}");
    assert_eq!(status.counters.received, 0);
    assert!(status.line().contains("; refused (key): "));
    // The nodes load the key, as after a SIGHUP. Then the analyzer receives all waiting records.
    for ring in &rings {
        ring.set(Some(tls_of(1, None)));
    }
    let status = work_until(&mut analyzer_loop, |status| status.counters.delivered == 20);
    assert_eq!(status.counters.delivered, 20);
    assert_eq!(close(&mut analyzer_loop, nodes), [(10, 0), (10, 0)]);
}

#[test]
fn a_node_with_a_key_and_an_analyzer_without_say_what_to_do() {
    let listen = free_address();
    let open = ring(None);
    let mut analyzer_loop = analyzer_loop(listen, &open, None, 1 << 30);
    let mut node = shipper(1, RecordTransport::Tcp, listen, &keyring());
    ship(&mut node, 10);
    await_trouble(
        &mut analyzer_loop,
        &node,
        "compare 'key_file' and 'records_certificate'",
    );
    let status = work_until(&mut analyzer_loop, |status| {
        refused(status, Reason::Key) > 0
    });
    assert!(refused(&status, Reason::Key) > 0 && status.counters.received == 0);
}

#[test]
fn a_key_is_changed_in_three_steps_and_nothing_is_lost() {
    let listen = free_address();
    let (analyzer, of_node) = (ring(Some(1)), ring(Some(1)));
    let mut analyzer_loop = analyzer_loop(listen, &analyzer, None, 1 << 30);
    let mut node = shipper(1, RecordTransport::Tcp, listen, &of_node);
    let mut count = 0;
    for (key, other) in [(1, None), (1, Some(2)), (2, Some(1)), (2, None)] {
        for ring in [&of_node, &analyzer] {
            ring.set(Some(tls_of(key, other)));
            ship(&mut node, 10);
            count += 10;
            let status = work_until(&mut analyzer_loop, |status| {
                status.counters.delivered == count
            });
            assert_eq!(status.counters.delivered, count);
            assert_eq!(refused(&status, Reason::Key), 0);
        }
    }
    // A node with only the old key is refused.
    let mut old = shipper(2, RecordTransport::Tcp, listen, &ring(Some(1)));
    ship(&mut old, 1);
    await_trouble(&mut analyzer_loop, &old, "it has another key");
    assert_eq!(close(&mut analyzer_loop, vec![node]), [(count, 0)]);
}
