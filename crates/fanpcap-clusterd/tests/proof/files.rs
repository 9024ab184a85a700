//! Reads the packets in the analyzer's files and in merged files.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use pcap_file::pcap::PcapReader;

use crate::wire;

/// The type of a block with a packet, its interface and its time (pcapng, section 4.3).
const PACKET: u32 = 6;

/// A packet in a file.
struct Packet {
    number: u64,
    /// The number of the packet's interface in the file. There is one interface for each node and
    /// topology.
    interface: u32,
    /// The time stamp, in nanoseconds since 1970.
    stamp: u64,
}

/// The packets in all files of a directory, in the order of the files.
///
/// # Errors
/// Fails if a file does not consist of complete pcapng blocks.
fn packets(directory: &Path) -> Result<Vec<Packet>> {
    let entries = fs::read_dir(directory).context("the analyzer's directory")?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.sort();
    let mut packets = Vec::new();
    for path in paths {
        let bytes = fs::read(&path)?;
        blocks(&bytes, &mut packets).with_context(|| path.display().to_string())?;
    }
    Ok(packets)
}

/// The numbers of the packets in all files of a directory, in the order of the files.
///
/// # Errors
/// Fails if a file does not consist of complete pcapng blocks.
pub(crate) fn numbers(directory: &Path) -> Result<Vec<u64>> {
    let packets = packets(directory)?;
    Ok(packets.iter().map(|packet| packet.number).collect())
}

/// The first packets that occur more than once, each with its interface and its time stamp.
///
/// # Errors
/// Fails if a file does not consist of complete pcapng blocks.
pub(crate) fn doubles(directory: &Path) -> Result<String> {
    let mut packets = packets(directory)?;
    packets.sort_by_key(|packet| packet.number);
    let same = packets.chunk_by(|one, other| one.number == other.number);
    let doubles = same.filter(|same| same.len() > 1).flatten().take(SHOWN);
    let shown = doubles.map(|it| format!("{} of {} at {}\n", it.number, it.interface, it.stamp));
    Ok(shown.collect())
}

const SHOWN: usize = 40;

/// The numbers of the packets in a pcap file, in the file's order.
///
/// # Errors
/// Fails if the file is not a pcap file, or is cut off.
pub(crate) fn numbers_of_pcap(path: &Path) -> Result<Vec<u64>> {
    let mut reader = PcapReader::new(BufReader::new(File::open(path)?))?;
    let mut numbers = Vec::new();
    while let Some(packet) = reader.next_packet() {
        numbers.extend(wire::number(&packet?.data));
    }
    Ok(numbers)
}

fn blocks(mut bytes: &[u8], packets: &mut Vec<Packet>) -> Result<()> {
    let word = |bytes: &[u8], at: usize| -> Result<u32> {
        let word = bytes.get(at..at + 4).context("a block's end is missing")?;
        Ok(u32::from_ne_bytes(word.try_into()?))
    };
    while !bytes.is_empty() {
        let length = word(bytes, 4)? as usize;
        ensure!(
            length >= 12 && word(bytes, length - 4)? as usize == length,
            "a block with two lengths"
        );
        if word(bytes, 0)? == PACKET {
            let captured = word(bytes, 20)? as usize;
            let packet = bytes.get(28..28 + captured).context("a short packet")?;
            let stamp = (u64::from(word(bytes, 12)?) << 32) | u64::from(word(bytes, 16)?);
            let interface = word(bytes, 8)?;
            packets.extend(wire::number(packet).map(|number| Packet {
                number,
                interface,
                stamp,
            }));
        }
        bytes = &bytes[length..];
    }
    Ok(())
}
