//! Replays capture files: unchanged, in loops, and with other addresses.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test may end where its input is not as it should be"
)]

use std::borrow::Cow;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use fanpcap_gen::{
    Description, Device, Families, Faults, Lengths, Limit, Pool, Records, Replay, Transports,
    move_addresses,
};
use pcap_file::pcap::{PcapPacket, PcapWriter};
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
use pcap_file::{DataLink, Endianness};

/// A file that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("fanpcap-gen-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Frames of odd and even lengths, all different.
fn frames() -> Vec<Vec<u8>> {
    (60..1514_usize)
        .step_by(7)
        .map(|len| (0..len).map(|at| (at * len % 251) as u8).collect())
        .collect()
}

fn write_pcap(path: &Path, frames: &[Vec<u8>], microseconds: u64) {
    let mut writer = PcapWriter::new(File::create(path).unwrap()).unwrap();
    for (number, frame) in (0..).zip(frames) {
        let time = Duration::from_micros(1_000_000 + number * microseconds);
        let len = u32::try_from(frame.len()).unwrap();
        let packet = PcapPacket::new(time, len, frame);
        writer.write_packet(&packet).unwrap();
    }
}

fn assert_holds(pool: &Pool, frames: &[Vec<u8>]) {
    assert_eq!(pool.len(), frames.len());
    for (number, frame) in (0..).zip(frames) {
        assert_eq!(&pool.frame(number), frame);
    }
}

#[test]
fn a_pcap_comes_out_as_it_went_in() {
    let file = Scratch::new("one.pcap");
    write_pcap(&file.0, &frames(), 10);
    let (pool, faults) = Pool::replay(&file.0, None).unwrap().unwrap();
    assert_eq!(faults, Faults::default());
    assert_holds(&pool, &frames());
}

#[test]
fn a_pcapng_comes_out_as_it_went_in_with_its_times() {
    let file = Scratch::new("one.pcapng");
    for endianness in [Endianness::Little, Endianness::Big] {
        let out = File::create(&file.0).unwrap();
        let mut writer = PcapNgWriter::with_endianness(out, endianness).unwrap();
        let interface = InterfaceDescriptionBlock {
            linktype: DataLink::ETHERNET,
            snaplen: 0,
            options: vec![InterfaceDescriptionOption::IfTsResol(9)],
        };
        writer.write_pcapng_block(interface).unwrap();
        for (number, frame) in (0..).zip(frames()) {
            let packet = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(5000 + 11 * number),
                original_len: u32::try_from(frame.len()).unwrap(),
                data: Cow::Owned(frame),
                options: vec![],
            };
            writer.write_pcapng_block(packet).unwrap();
        }
        let odd = SimplePacketBlock {
            original_len: 61,
            data: Cow::Owned(vec![3; 61]),
        };
        writer.write_pcapng_block(odd).unwrap();
        drop(writer);

        let (pool, _) = Pool::replay(&file.0, None).unwrap().unwrap();
        let mut all = frames();
        all.push(vec![3; 61]);
        assert_holds(&pool, &all);
        let times: Vec<u64> = Records::open(&file.0)
            .unwrap()
            .map(|record| record.unwrap().time)
            .collect();
        assert_eq!(times[..3], [5000, 5011, 5022]);
    }
}

#[test]
fn what_is_no_capture_of_ethernet_is_refused() {
    let file = Scratch::new("wrong");
    for (content, why) in [
        (&b"no capture at all, but long enough"[..], "wrong"),
        (&[][..], "wrong"),
        (
            // A header of raw IP packets, link type 101.
            &[
                0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 101, 0, 0,
                0,
            ][..],
            "link type 101",
        ),
    ] {
        fs::write(&file.0, content).unwrap();
        let error = Pool::replay(&file.0, None).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    write_pcap(&file.0, &[], 1);
    let error = Pool::replay(&file.0, None).unwrap_err().to_string();
    assert!(error.contains("no packets"), "{error}");
    write_pcap(&file.0, &[vec![0; 60], vec![0; 13]], 1);
    let error = Pool::replay(&file.0, None).unwrap_err().to_string();
    assert!(error.contains("packet 2 is shorter"), "{error}");
    fs::write(&file.0, [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]).unwrap();
    let error = Pool::replay(&file.0, None).unwrap_err().to_string();
    assert!(error.contains("zcat"), "{error}");
}

#[test]
fn of_a_cut_file_the_whole_packets_are_taken() {
    let file = Scratch::new("cut.pcap");
    write_pcap(&file.0, &[vec![1; 60], vec![2; 70]], 1);
    let whole = fs::read(&file.0).unwrap();
    for missing in [1, 5, 70, 80] {
        fs::write(&file.0, &whole[..whole.len() - missing]).unwrap();
        let (pool, faults) = Pool::replay(&file.0, None).unwrap().unwrap();
        assert_holds(&pool, &[vec![1; 60]]);
        assert!(faults.cut);
        let mut replay = Replay::open(&file.0, Some(2), false, None).unwrap();
        let pool = replay.next_pool().unwrap().unwrap();
        assert_holds(&pool, &[vec![1; 60], vec![1; 60]]);
        assert!(replay.faults().cut);
    }
}

#[test]
fn bits_about_check_sequences_are_no_link_type() {
    let file = Scratch::new("checked.pcap");
    write_pcap(&file.0, &[vec![1; 64]], 1);
    let mut content = fs::read(&file.0).unwrap();
    // PcapWriter writes big-endian here. The link type is the header's last word. In the first link
    // type below, the upper bits say that each frame ends with a check sequence of four bytes. In
    // the second, they say that the length of the check sequence is unknown.
    let big = content[0] == 0xa1;
    for (link, len) in [(0x2400_0001_u32, 60), (0x1000_0001, 64)] {
        let bytes = if big {
            link.to_be_bytes()
        } else {
            link.to_le_bytes()
        };
        content[20..24].copy_from_slice(&bytes);
        fs::write(&file.0, &content).unwrap();
        let (pool, faults) = Pool::replay(&file.0, None).unwrap().unwrap();
        assert_holds(&pool, &[vec![1; len]]);
        assert_eq!(faults, Faults::default());
    }
}

#[test]
fn packets_that_are_too_long_are_named_or_left_out() {
    let file = Scratch::new("long.pcap");
    let frames = [vec![1; 1514], vec![2; 1515], vec![3; 60], vec![4; 9000]];
    write_pcap(&file.0, &frames, 1);
    let device = Device {
        name: "x".to_owned(),
        index: 1,
        kind: String::new(),
        mtu: 1500,
    };
    let mut limit = Limit {
        device,
        skip: false,
    };
    let error = Pool::replay(&file.0, Some(&limit)).unwrap_err().to_string();
    assert!(error.contains("packet 2 has 1515 bytes"), "{error}");
    assert!(error.contains("--skip-long"), "{error}");
    limit.skip = true;
    let (pool, faults) = Pool::replay(&file.0, Some(&limit)).unwrap().unwrap();
    assert_holds(&pool, &[frames[0].clone(), frames[2].clone()]);
    assert_eq!(faults.skipped, 2);
    let mut replay = Replay::open(&file.0, Some(1), true, Some(limit)).unwrap();
    assert_eq!(replay.next_pool().unwrap().unwrap().len(), 2);
    assert_eq!(replay.faults().skipped, 2);
}

#[test]
fn packets_longer_than_the_snaplen_stay_whole_and_cut_ones_are_counted() {
    let file = Scratch::new("snaplen.pcapng");
    let mut writer = PcapNgWriter::new(File::create(&file.0).unwrap()).unwrap();
    let interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 64);
    writer.write_pcapng_block(interface).unwrap();
    for original_len in [100, 200] {
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::ZERO,
            original_len,
            data: Cow::Owned(vec![9; 100]),
            options: vec![],
        };
        writer.write_pcapng_block(packet).unwrap();
    }
    drop(writer);
    let (pool, faults) = Pool::replay(&file.0, None).unwrap().unwrap();
    assert_holds(&pool, &[vec![9; 100], vec![9; 100]]);
    assert_eq!(faults.shortened, 1);
    let mut replay = Replay::open(&file.0, Some(1), true, None).unwrap();
    replay.next_pool().unwrap();
    assert_eq!(replay.faults().shortened, 1);
}

#[test]
fn loops_repeat_all_packets() {
    let file = Scratch::new("loops.pcap");
    write_pcap(&file.0, &frames(), 10);
    let mut replay = Replay::open(&file.0, Some(3), false, None).unwrap();
    let pool = replay.next_pool().unwrap().unwrap();
    assert_holds(&pool, &[frames(), frames(), frames()].concat());
    assert!(replay.next_pool().unwrap().is_none());
}

#[test]
fn a_large_file_comes_in_several_pools_and_loses_nothing() {
    let file = Scratch::new("large.pcap");
    let many: Vec<Vec<u8>> = (0..20_000_u32)
        .map(|number| [number.to_be_bytes().as_slice(), &[7; 1500]].concat())
        .collect();
    write_pcap(&file.0, &many, 1);
    let mut replay = Replay::open(&file.0, Some(2), false, None).unwrap();
    let (mut number, mut pools) = (0, 0);
    while let Some(pool) = replay.next_pool().unwrap() {
        for place in 0..pool.len() as u64 {
            assert_eq!(pool.frame(place), many[number % many.len()]);
            number += 1;
        }
        pools += 1;
    }
    assert_eq!(number, 2 * many.len());
    assert!(pools > 2, "{pools}");
}

/// Addresses of a frame, without and with the ports.
fn ends(frame: &[u8]) -> (String, String) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    match packet.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            assert_eq!(
                header.to_header().calc_header_checksum(),
                header.header_checksum()
            );
            (
                header.source_addr().to_string(),
                header.destination_addr().to_string(),
            )
        }
        NetSlice::Ipv6(ip) => (
            ip.header().source_addr().to_string(),
            ip.header().destination_addr().to_string(),
        ),
        NetSlice::Arp(_) => panic!("no ARP here"),
    }
}

/// Whether the transport checksum equals etherparse's.
fn transport_holds(frame: &[u8]) -> bool {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let net = packet.net.as_ref().unwrap();
    match (net, packet.transport.as_ref().unwrap()) {
        (NetSlice::Ipv4(ip), TransportSlice::Udp(udp)) => {
            let header = ip.header().to_header();
            let made = udp.to_header().calc_checksum_ipv4(&header, udp.payload());
            made.unwrap() == udp.checksum()
        }
        (NetSlice::Ipv4(ip), TransportSlice::Tcp(tcp)) => {
            let header = ip.header().to_header();
            let made = tcp.to_header().calc_checksum_ipv4(&header, tcp.payload());
            made.unwrap() == tcp.checksum()
        }
        (NetSlice::Ipv6(ip), TransportSlice::Udp(udp)) => {
            let header = ip.header().to_header();
            let made = udp.to_header().calc_checksum_ipv6(&header, udp.payload());
            made.unwrap() == udp.checksum()
        }
        (NetSlice::Ipv6(ip), TransportSlice::Tcp(tcp)) => {
            let header = ip.header().to_header();
            let made = tcp.to_header().calc_checksum_ipv6(&header, tcp.payload());
            made.unwrap() == tcp.checksum()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn moved_flows_stay_flows_with_good_checksums() {
    let description = Description {
        flows: 40,
        families: Families::Both,
        transports: Transports::Both,
        answers: true,
        vlans: vec![9],
        lengths: Lengths::Uniform(80, 600),
        ..Description::default()
    };
    let pool = description.pool().unwrap();
    for turn in [1, 2, 1000, 65_535] {
        for flow in 0..40 {
            let (mut there, mut back) = (pool.frame(flow), pool.frame(flow + 40));
            let before = ends(&there);
            move_addresses(&mut there, turn);
            move_addresses(&mut back, turn);
            let (source, destination) = ends(&there);
            assert_eq!(ends(&back), (destination.clone(), source.clone()));
            assert!(before.0 != source && before.1 != destination);
            assert!(transport_holds(&there) && transport_holds(&back));
        }
    }
}

#[test]
fn every_turn_has_addresses_of_its_own() {
    let pool = Description::default().pool().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for turn in 0..65_536 {
        let mut frame = pool.frame(0);
        move_addresses(&mut frame, turn);
        assert!(seen.insert(frame[26..34].to_vec()), "turn {turn}");
    }
}

#[test]
fn what_has_no_address_to_move_stays() {
    for len in 0..200 {
        let mut frame: Vec<u8> = (0..len).collect();
        let before = frame.clone();
        move_addresses(&mut frame, 5);
        assert_eq!(frame, before);
        // Truncated IPv4 and IPv6 must not cause a panic.
        for kind in [[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00]] {
            if let Some(place) = frame.get_mut(12..14) {
                place.copy_from_slice(&kind);
            }
            move_addresses(&mut frame.clone(), 5);
        }
    }
    let multicast = Description {
        destinations4: "224.0.0.0/24".parse().unwrap(),
        ..Description::default()
    };
    let mut frame = multicast.pool().unwrap().frame(0);
    let (source, destination) = ends(&frame);
    move_addresses(&mut frame, 5);
    assert_eq!(ends(&frame).1, destination);
    assert_ne!(ends(&frame).0, source);
    assert!(transport_holds(&frame));
}

#[test]
fn loops_move_all_but_the_first() {
    let file = Scratch::new("moved.pcap");
    let pool = Description::default().pool().unwrap();
    let frames: Vec<Vec<u8>> = (0..64).map(|number| pool.frame(number)).collect();
    write_pcap(&file.0, &frames, 10);
    let mut replay = Replay::open(&file.0, Some(3), true, None).unwrap();
    let pool = replay.next_pool().unwrap().unwrap();
    assert_eq!(pool.len(), 3 * 64);
    for (number, frame) in (0..).zip(&frames) {
        assert_eq!(&pool.frame(number), frame);
        let (one, two) = (pool.frame(64 + number), pool.frame(128 + number));
        assert!(ends(&one) != ends(frame) && ends(&one) != ends(&two));
        assert_eq!(one[34..38], frame[34..38], "ports stay");
        assert!(transport_holds(&one) && transport_holds(&two));
    }
}
