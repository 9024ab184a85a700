//! What the analyzer before this one had written last.
//!
//! A killed analyzer may have written packets that it had not acknowledged. Nodes send them again,
//! so the end of the files that are there is read, and what stands there is not written again.

use std::collections::HashSet;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use fanpcap_cli::streams;
use fanpcap_cluster::analyzer::Delivered;

use super::{END, ours};
use crate::analyzer::pcapng::{self, INTERFACE, PACKET, SECTION};

/// Bytes that are read: more than an analyzer writes between two acknowledgements.
const MOST: u64 = if cfg!(test) { 90_000 } else { 128 << 20 };

/// Nanoseconds after the first packet in which nodes send again what the analyzer before this one
/// had not acknowledged.
const LONG: u64 = 600_000_000_000;

/// Most bytes of a block that a killed analyzer had not written to its end.
const CUT: usize = 1 << 17;

/// So many blocks one before the other are no accident.
const CHAIN: usize = 8;

/// The packets that were written last.
#[derive(Debug)]
pub(super) struct Written {
    /// Nobody who sends packets can make two of one number.
    hasher: RandomState,
    packets: HashSet<u64>,
    /// Until then nodes may send them again; 0: no packet has come yet.
    until: u64,
}

impl Written {
    /// Reads the end of the newest files of a directory. Says what can't be read.
    pub(super) fn read(directory: &Path) -> Self {
        let mut written = Self {
            hasher: RandomState::new(),
            packets: HashSet::new(),
            until: 0,
        };
        let mut room = MOST;
        // Who can't list the directory hears so when writing.
        let files = ours(directory, END).unwrap_or_default();
        for path in files.iter().rev() {
            match end_of(path, room) {
                Ok(bytes) => {
                    room -= bytes.len() as u64;
                    let packets = packets(&bytes).map(|packet| written.hasher.hash_one(packet));
                    written.packets.extend(packets);
                }
                Err(error) => streams::note(&format!(
                    "fanpcap analyzer: cannot read {}: {error}: packets that stand there may be \
                     written again\n",
                    path.display()
                )),
            }
        }
        written
    }

    /// Whether a packet that comes at `now`, in nanoseconds since 1970, stands in the files.
    pub(super) fn has(&mut self, packet: &Delivered<'_>, now: u64) -> bool {
        if self.until == 0 {
            self.until = now.saturating_add(LONG);
        } else if now > self.until {
            self.packets = HashSet::new();
        }
        if self.packets.is_empty() {
            return false;
        }
        let record = &packet.record;
        let stored: Stored<'_> = (record.stamp, pcapng::wire_length(record), record.captured);
        self.packets.remove(&self.hasher.hash_one(stored))
    }
}

/// The last bytes of a file, at most `most`. Blocks end at multiples of four bytes.
fn end_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len() & !3;
    let begin = length.saturating_sub(most & !3);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(length - begin).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A packet in a file: its stamp in nanoseconds, its bytes on the wire, and what was captured.
type Stored<'a> = (u64, u32, &'a [u8]);

/// The packets that these bytes end with, the last one first. A block that was cut off at the end
/// is left out.
fn packets(bytes: &[u8]) -> impl Iterator<Item = Stored<'_>> {
    let cuts = (0..=CUT.min(bytes.len())).step_by(4);
    let mut parts = cuts.map(|cut| &bytes[..bytes.len() - cut]);
    let is_whole = |part: &&[u8]| {
        let last = blocks(part).take(CHAIN).enumerate().last();
        last.is_some_and(|(at, (before, _))| at + 1 == CHAIN || before.is_empty())
    };
    let whole = parts.find(is_whole).unwrap_or_default();
    blocks(whole).filter_map(|(_, block)| stored(block))
}

/// The blocks that these bytes end with, the last one first, each with what stands before it.
fn blocks(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::successors(last_block(bytes), |(before, _)| last_block(before))
}

fn last_block(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = word(bytes, bytes.len().checked_sub(4)?)?;
    let begin = bytes.len().checked_sub(length as usize)?;
    let is_kind = [SECTION, INTERFACE, PACKET].contains(&word(bytes, begin)?);
    let is_block = is_kind && length >= 12 && word(bytes, begin + 4)? == length;
    is_block.then(|| bytes.split_at(begin))
}

/// The packet of a block.
fn stored(block: &[u8]) -> Option<Stored<'_>> {
    if word(block, 0)? != PACKET {
        return None;
    }
    let stamp = (u64::from(word(block, 12)?) << 32) | u64::from(word(block, 16)?);
    let captured = word(block, 20)? as usize;
    let captured = block.get(28..28usize.checked_add(captured)?)?;
    Some((stamp, word(block, 24)?, captured))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    word.try_into().ok().map(u32::from_le_bytes)
}
