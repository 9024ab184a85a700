//! What the analyzer before this one had written last.
//!
//! A killed analyzer may have written packets that it had not acknowledged. Nodes send them again,
//! so the end of the files that are there is read, and what stands there is not written again.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fanpcap_cluster::analyzer::Delivered;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};

use super::{END, is_ours};
use crate::analyzer::pcapng;

/// Packets that are known: more than an analyzer writes between two acknowledgements. They take
/// about 20 MB.
const MOST: usize = 1 << 20;

/// A node sends what an analyzer lacks within this, in nanoseconds: then nothing is known any more.
const LONG: u64 = 600_000_000_000;

/// The packets that were written last.
#[derive(Debug)]
pub(super) struct Written {
    /// Nobody who sends packets can make two of one number.
    hasher: RandomState,
    packets: HashSet<u64>,
    /// The newest stamp among them.
    newest: u64,
}

impl Written {
    /// Reads the end of the newest files of a directory.
    ///
    /// # Errors
    ///
    /// The directory or a file can't be read. A file that is damaged is known up to there.
    pub(super) fn read(directory: &Path) -> Result<Self> {
        let mut written = Self {
            hasher: RandomState::new(),
            packets: HashSet::new(),
            newest: 0,
        };
        let files = files(directory).with_context(|| format!("reading {}", directory.display()))?;
        for path in files.iter().rev() {
            let room = MOST.saturating_sub(written.packets.len());
            if room == 0 {
                break;
            }
            let last = written.last_of(path, room);
            let last = last.with_context(|| format!("reading {}", path.display()))?;
            written.packets.extend(last);
        }
        Ok(written)
    }

    /// The last packets of a file, at most `room`.
    fn last_of(&mut self, path: &Path, room: usize) -> io::Result<VecDeque<u64>> {
        let mut last = VecDeque::new();
        let file = BufReader::with_capacity(1 << 20, File::open(path)?);
        let Ok(mut reader) = PcapNgReader::new(file) else {
            return Ok(last);
        };
        let mut names = Vec::new();
        while let Some(Ok(block)) = reader.next_block() {
            if let Block::InterfaceDescription(interface) = block {
                names.push(name(&interface));
            } else if let Block::EnhancedPacket(packet) = block {
                let name = names.get(packet.interface_id as usize);
                let name = name.map_or("", String::as_str);
                let stamp = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(0);
                self.newest = self.newest.max(stamp);
                if last.len() == room {
                    last.pop_front();
                }
                last.push_back(self.number(name, stamp, packet.original_len, &packet.data));
            }
        }
        Ok(last)
    }

    /// Whether a packet stands in the files already.
    pub(super) fn has(&mut self, packet: &Delivered<'_>) -> bool {
        let record = &packet.record;
        if record.stamp > self.newest {
            if record.stamp - self.newest > LONG {
                self.packets = HashSet::new();
            }
            return false;
        }
        if self.packets.is_empty() {
            return false;
        }
        let name = pcapng::interface_name(packet.node);
        let wire_length = pcapng::wire_length(record);
        let number = self.number(&name, record.stamp, wire_length, record.captured);
        self.packets.remove(&number)
    }

    fn number(&self, node: &str, stamp: u64, wire_length: u32, captured: &[u8]) -> u64 {
        self.hasher.hash_one((node, stamp, wire_length, captured))
    }
}

/// The files of a directory, the oldest first.
fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?;
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths?;
    paths.retain(|path| is_ours(path, END));
    paths.sort_unstable();
    Ok(paths)
}

/// An interface's name.
fn name(interface: &InterfaceDescriptionBlock<'_>) -> String {
    for option in &interface.options {
        if let InterfaceDescriptionOption::IfName(name) = option {
            return name.to_string();
        }
    }
    String::new()
}
