//! How evenly eight nodes share the packets of real captures, with each key.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, reason = "says figures")]

use std::fs::File;
use std::path::{Path, PathBuf};

use fanpcap_select::{Key, Keys, Selection, bob};
use fanpcap_wire::{Frame, Header, Layers};
use pcap_file::DataLink;
use pcap_file::pcap::PcapReader;

const NODES: u32 = 8;
/// Arbitrary initial values of the hash.
const INITIALS: [u32; 3] = [0, 3, 0x0123_4567];

/// All Ethernet frames of the pcap files in a directory and its subdirectories.
fn frames(dir: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut frames = Vec::new();
    for path in paths {
        if path.is_dir() {
            frames.extend(self::frames(&path));
        } else if path.extension().is_some_and(|name| name == "pcap") {
            frames.extend(read(&path));
        }
    }
    frames
}

/// The frames of a file, up to the first frame that can't be read. Empty if the file is no pcap
/// file, or its link type is not Ethernet.
fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let Ok(mut reader) = PcapReader::new(File::open(path).unwrap()) else {
        return frames;
    };
    if reader.header().datalink == DataLink::ETHERNET {
        while let Some(Ok(packet)) = reader.next_packet() {
            frames.push(packet.data.into_owned());
        }
    }
    frames
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    Frame { bytes, tag: None }
}

/// By how many percent the busiest node's packets exceed the mean.
fn imbalance(nodes: impl Iterator<Item = u32>) -> f64 {
    let mut counts = [0_u32; NODES as usize];
    for node in nodes {
        counts[(node % NODES) as usize] += 1;
    }
    let mean = f64::from(counts.iter().sum::<u32>()) / f64::from(NODES);
    100.0 * (f64::from(*counts.iter().max().unwrap()) / mean - 1.0)
}

fn by_key(frames: &[Vec<u8>], key: Key, initial: u32) -> f64 {
    let mut keys = Keys::new(Selection { key, initial });
    // The packets are a millisecond apart.
    let times = (0..).step_by(1_000_000);
    let numbers = frames.iter().zip(times);
    let buckets = numbers.map(|(bytes, now)| keys.number(&frame(bytes), now).bucket);
    imbalance(buckets.map(|bucket| u32::try_from(bucket).unwrap()))
}

/// The imbalance with the paper's `hash(IP id) mod N`. A packet without an id counts as id 0.
fn by_papers_formula(frames: &[Vec<u8>], initial: u32) -> f64 {
    let id = |bytes: &[u8]| match Layers::of(&frame(bytes)).ip().map(|ip| ip.header) {
        Some(Header::V4(header)) => header.id(),
        Some(Header::V6(_)) | None => 0,
    };
    let hash = |bytes: &Vec<u8>| bob::hash(&id(bytes).to_be_bytes(), initial);
    imbalance(frames.iter().map(hash))
}

/// Prints the median, minimum and maximum over all initial values of the hash. Returns the median.
fn said(what: &str, of: impl Fn(u32) -> f64) -> f64 {
    let mut figures = INITIALS.map(of);
    figures.sort_by(f64::total_cmp);
    let [least, .., greatest] = figures;
    let median = figures[INITIALS.len() / 2];
    println!("{what}: +{median:.2} % (+{least:.2} to +{greatest:.2})");
    median
}

#[test]
fn eight_nodes_share_real_packets_evenly() {
    let Some(dir) = std::env::var_os("FANPCAP_CAPTURES") else {
        println!("SKIP: FANPCAP_CAPTURES names no directory of captures: see CONTRIBUTING.md");
        return;
    };
    let frames = frames(Path::new(&dir));
    let (packets, secrets) = (frames.len(), INITIALS.len());
    assert!(packets > 10_000, "{packets} frames");
    println!("{packets} frames, {NODES} nodes, {secrets} secrets");
    let packet = said("per packet", |it| by_key(&frames, Key::Packet, it));
    said("per flow", |it| by_key(&frames, Key::Flow, it));
    said("identification, else content", |it| {
        by_key(&frames, Key::Identification, it)
    });
    let paper = said("the paper's hash(IP id) mod N", |it| {
        by_papers_formula(&frames, it)
    });
    assert!(packet <= 2.0, "per packet: +{packet:.2} %");
    assert!(paper > 10.0 * packet, "all packets have identifications");
}
