//! Captures: pcap files read back, with flow and sequence number of every packet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use pcap_file::TsResolution;
use pcap_file::pcap::{PcapReader, RawPcapPacket};

use crate::flow::FlowKey;

/// A captured packet.
#[derive(Clone, Debug)]
pub struct Packet {
    /// The packet's time stamp, since 1970.
    pub stamp: Duration,
    /// The packet's flow, if it is an IP packet.
    pub flow: Option<FlowKey>,
    /// The sequence number that frames of the test traffic carry, if the captured part contains it.
    pub sequence: Option<u64>,
    /// Bytes captured.
    pub captured_len: usize,
    /// Bytes that were on the wire.
    pub original_len: usize,
}

impl Packet {
    fn of(record: &RawPcapPacket<'_>, unit: TsResolution) -> Self {
        let fraction = match unit {
            TsResolution::MicroSecond => Duration::from_micros(record.ts_frac.into()),
            TsResolution::NanoSecond => Duration::from_nanos(record.ts_frac.into()),
        };
        Self {
            stamp: Duration::from_secs(record.ts_sec.into()) + fraction,
            flow: FlowKey::of(&record.data),
            sequence: sequence_of(&record.data),
            captured_len: record.data.len(),
            original_len: record.orig_len as usize,
        }
    }
}

/// The content of a pcap file.
#[derive(Clone, Debug)]
pub struct Capture {
    /// The packets, in the file's order.
    pub packets: Vec<Packet>,
}

impl Capture {
    /// Reads a complete pcap file of Ethernet frames.
    ///
    /// # Errors
    /// The file can't be read, or ends within a packet.
    pub fn read(path: &Path) -> Result<Self> {
        let mut packets = Vec::new();
        for_each_record(path, |record, unit| packets.push(Packet::of(&record, unit)))?;
        Ok(Self { packets })
    }

    /// Reads the complete packets of a file that is still being written; no packets if the file
    /// does not exist yet.
    pub fn read_so_far(path: &Path) -> Self {
        let mut packets = Vec::new();
        // Ignore the error: it only marks the end of the bytes that have been written so far.
        let _ = for_each_record(path, |record, unit| packets.push(Packet::of(&record, unit)));
        Self { packets }
    }

    /// The number of packets that [`Capture::read_so_far`] would read.
    pub fn count_so_far(path: &Path) -> usize {
        let mut count = 0;
        let _ = for_each_record(path, |_, _| count += 1);
        count
    }

    /// The flows in the capture, each with its number of packets.
    pub fn flows(&self) -> BTreeMap<FlowKey, usize> {
        tally(self.packets.iter().filter_map(|packet| packet.flow))
    }
}

/// The captured bytes of each packet of a complete pcap file, in its order.
///
/// # Errors
/// As [`Capture::read`].
pub fn frames(path: &Path) -> Result<Vec<Vec<u8>>> {
    let mut frames = Vec::new();
    for_each_record(path, |record, _| frames.push(record.data.into_owned()))?;
    Ok(frames)
}

/// The flows of which more than one of the captures has packets.
pub fn split_flows(captures: &[Capture]) -> BTreeSet<FlowKey> {
    split_by(captures, |flow| flow)
}

/// Makes keys from flows by `key`, and returns the keys that occur in more than one capture.
pub fn split_by<T: Ord>(captures: &[Capture], key: impl Fn(FlowKey) -> T) -> BTreeSet<T> {
    let keys = |capture: &Capture| {
        capture
            .flows()
            .into_keys()
            .map(&key)
            .collect::<BTreeSet<_>>()
    };
    let sightings = tally(captures.iter().flat_map(keys));
    sightings
        .into_iter()
        .filter(|&(_, members)| members > 1)
        .map(|(key, _)| key)
        .collect()
}

/// The sequence numbers, each with the number of its packets in all captures together.
pub fn sequences(captures: &[Capture]) -> BTreeMap<u64, usize> {
    tally(
        captures
            .iter()
            .flat_map(|capture| &capture.packets)
            .filter_map(|packet| packet.sequence),
    )
}

/// The bytes before the sequence number in a frame of the test traffic.
pub const MARK: [u8; 4] = *b"FANP";

/// The sequence number in a frame's bytes; `None` if the bytes do not contain it.
pub fn sequence_of(bytes: &[u8]) -> Option<u64> {
    let at = bytes
        .windows(MARK.len())
        .position(|window| window == MARK)?
        + MARK.len();
    let number = bytes.get(at..at + 8)?;
    Some(u64::from_be_bytes(number.try_into().ok()?))
}

fn for_each_record(
    path: &Path,
    mut visit: impl FnMut(RawPcapPacket<'_>, TsResolution),
) -> Result<()> {
    let mut reader = PcapReader::new(File::open(path)?)
        .with_context(|| format!("the header of {}", path.display()))?;
    let unit = reader.header().ts_resolution;
    while let Some(record) = reader.next_raw_packet() {
        visit(
            record.with_context(|| format!("a packet of {}", path.display()))?,
            unit,
        );
    }
    Ok(())
}

fn tally<T: Ord>(items: impl Iterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item).or_insert(0) += 1;
    }
    counts
}
