//! From nodes' shippers to files, over loopback.

use std::fs;
use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::time::Instant;

use fanpcap_cluster::Revision;
use fanpcap_cluster::record::Record;
use fanpcap_testkit::Scratch;
use pcap_file::pcapng::{Block, PcapNgReader};

use super::*;
use crate::shipping::{Shipper, ShipperSettings, Way};

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

fn desk(listen: SocketAddr, directory: Option<&Path>, bytes: u64) -> Desk {
    let second = 1_000_000_000;
    Desk::open(&DeskSettings {
        listen,
        directory,
        rotation: Rotation {
            bytes,
            time: 3600 * second,
            keep: 3,
        },
        analyzer: AnalyzerSettings {
            cluster: 1,
            hold: second / 5,
            skew: second / 20,
            most_held: 256 << 20,
            seed: 1,
        },
        analyzed: true,
        offline: 15 * second,
    })
    .unwrap()
}

fn shipper(node: u32, way: Way, to: SocketAddr) -> Shipper {
    let mut shipper = Shipper::new(ShipperSettings {
        cluster: 1,
        node: NodeId(node),
        boot: 1,
        session: 1,
        link: 1,
        way,
    });
    shipper.follow(&[to]).unwrap();
    shipper
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
    let listen = free_port();
    let mut desk = desk(listen, Some(&directory), 1 << 30);
    let mut nodes = [shipper(1, Way::Tcp, listen), shipper(2, Way::Tcp, listen)];
    let begin = now();
    for number in 0..20_000u32 {
        // The nodes take turns; in the second half both have each packet.
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
    let until = Instant::now() + Duration::from_secs(20);
    while closing.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
        desk.work();
    }
    let status = desk.close();
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
    let listen = free_port();
    let mut desk = desk(listen, Some(&directory), 1000);
    let mut node = shipper(1, Way::Udp(1400), listen);
    let until = Instant::now() + Duration::from_secs(20);
    let mut number = 0u32;
    while desk.close().written < 200 && Instant::now() < until {
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
        desk.work();
    }
    let (packets, files) = packets(&directory);
    assert_eq!(files, 3);
    assert!(!packets.is_empty() && packets.len() < 200);
}

/// A measurement in a release build with `FANPCAP_HEADERS=20000000`.
#[test]
fn headers_a_second_over_tcp() {
    let listen = free_port();
    let mut desk = desk(listen, None, 1 << 30);
    let mut node = shipper(1, Way::Tcp, listen);
    let count = std::env::var("FANPCAP_HEADERS").ok();
    let count: u64 = count.map_or(200_000, |text| text.parse().unwrap());
    let begin = Instant::now();
    let sender = thread::spawn(move || {
        let captured = [0x55; 52];
        let begin = now();
        for number in 0..count {
            let bucket = u16::try_from(number % 4096).unwrap();
            let stamp = begin + number * 250;
            let record = Record {
                stamp,
                wire_length: 60,
                bucket,
                marked: false,
                captured: &captured,
            };
            node.push(Revision(1), &record);
            // A capture that is faster than the network waits in its ring.
            if number % 512 == 0 {
                while number - node.shipped().sent - node.shipped().lost > 120_000 {
                    thread::yield_now();
                }
            }
        }
        node.close()
    });
    while !sender.is_finished() {
        desk.work();
    }
    let took = begin.elapsed();
    let shipped = sender.join().unwrap();
    let status = desk.close();
    println!(
        "{shipped:?}, {:?}: {:.2} M headers/s",
        status.counters,
        count as f64 / took.as_secs_f64() / 1e6
    );
    assert_eq!(shipped.lost + status.counters.export_lost, 0);
    assert_eq!(status.counters.delivered, count);
}
