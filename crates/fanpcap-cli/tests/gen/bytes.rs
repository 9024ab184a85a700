//! The frames that arrive equal the described or captured frames, byte for byte.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use fanpcap_testkit::Scratch;
use fanpcap_testkit::netns;
use pcap_file::DataLink;
use pcap_file::pcap::PcapPacket;
use pcap_file::pcap::PcapWriter;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;

use crate::{PASS, WAYS, captured, pair};

#[test]
#[ignore = "needs root: namespaces, eBPF, packet sockets"]
fn the_same_seed_sends_the_same_packets_by_both_ways() {
    let description =
        "--count 3000 --flows 33 --imix -4 -6 --udp --tcp --both --fragments 5 --seed 7";
    netns::within_new(|| {
        let _attached = pair(PASS)?;
        let scratch = Scratch::new()?;
        for more in ["", "--vlan 5", "--vxlan 77 --no-stamp"] {
            let mut runs = Vec::new();
            for way in [WAYS[0], WAYS[1], WAYS[0]] {
                let arguments = format!("{description} {more} {way} --rate 50kpps");
                let (frames, result) = captured(&arguments, &scratch)?;
                assert_eq!(frames.len(), 3000, "{result}");
                runs.push(frames);
            }
            assert!(runs[0] == runs[1] && runs[0] == runs[2], "{more}");
        }
        let (other, _) = captured("--count 3000 --seed 8 --portable", &scratch)?;
        let (one, _) = captured("--count 3000 --seed 7 --portable", &scratch)?;
        assert_ne!(one, other);
        Ok(())
    })
    .unwrap();
}

/// Compares the frames one by one, because a failure that shows all bytes would be too long to
/// read.
fn assert_same(arrived: &[Vec<u8>], sent: &[Vec<u8>]) {
    assert_eq!(arrived.len(), sent.len());
    for (number, (arrived, sent)) in arrived.iter().zip(sent).enumerate() {
        assert_eq!(arrived, sent, "frame {number}");
    }
}

/// Different frames of every length from 60 to 1514. All have the same EtherType, a local
/// experimental one. With different EtherTypes they might arrive in another order: if the kernel
/// receives several frames at once, frames that only a tap takes reach the tap after the other
/// frames (net/core/dev.c, `__netif_receive_skb_list_core`).
fn odd_frames() -> Vec<Vec<u8>> {
    (60..=1514_usize)
        .map(|len| {
            let mut frame: Vec<u8> = (0..len).map(|at| (at * len % 251) as u8).collect();
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            frame
        })
        .collect()
}

fn write_pcap(path: &Path, frames: &[Vec<u8>]) -> Result<()> {
    let mut writer = PcapWriter::new(File::create(path)?)?;
    for (number, frame) in (0..).zip(frames) {
        let time = Duration::from_micros(200 * number);
        let len = u32::try_from(frame.len())?;
        writer.write_packet(&PcapPacket::new(time, len, frame))?;
    }
    Ok(())
}

fn write_pcapng(path: &Path, frames: &[Vec<u8>]) -> Result<()> {
    let mut writer = PcapNgWriter::new(File::create(path)?)?;
    let interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 65_535);
    writer.write_pcapng_block(interface)?;
    for frame in frames {
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(1),
            original_len: u32::try_from(frame.len())?,
            data: Cow::Borrowed(frame),
            options: vec![],
        };
        writer.write_pcapng_block(packet)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root: namespaces, eBPF, packet sockets"]
fn a_replay_sends_a_captures_packets_byte_for_byte() {
    netns::within_new(|| {
        let _attached = pair(PASS)?;
        let scratch = Scratch::new()?;
        let (pcap, pcapng) = (scratch.file("in.pcap"), scratch.file("in.pcapng"));
        let frames = odd_frames();
        let total: usize = frames.iter().map(Vec::len).sum();
        write_pcap(&pcap, &frames)?;
        write_pcapng(&pcapng, &frames)?;
        let files = [pcap.clone(), pcapng];
        for file in files {
            for way in WAYS {
                let arguments = format!("--replay {} --loops 2 --rate 20k {way}", file.display());
                let (arrived, result) = captured(&arguments, &scratch)?;
                assert_same(&arrived, &[frames.clone(), frames.clone()].concat());
                assert_eq!(result["bytes"], 2 * total, "{result}");
            }
        }
        let own = format!("--replay {} --speed 1.0", pcap.display());
        let (arrived, result) = captured(&own, &scratch)?;
        println!(
            "{} s at the file's times, which take 0.291 s",
            result["seconds"]
        );
        assert_same(&arrived, &frames);
        let moved = format!("--replay {} --loops 3 --flows-per-loop", pcap.display());
        let (arrived, _) = captured(&moved, &scratch)?;
        // None of these frames is IP, so `--flows-per-loop` changes none of them. Another test,
        // which needs no device, checks the changes of addresses.
        assert_eq!(arrived.len(), 3 * frames.len());
        assert_same(&arrived[..frames.len()], &frames);
        Ok(())
    })
    .unwrap();
}
