//! Reads the newest packets in the files that the previous analyzer left.
//!
//! A killed analyzer may have written packets that it had not acknowledged. Nodes send these
//! packets again. So this analyzer reads the end of the existing files, and does not write packets
//! that it finds there.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use fanpcap_cluster::analyzer::Delivered;
use fanpcap_terminal::streams;
use zstd::stream::read::Decoder;

use super::kept::{COMPRESSED, ours};
use crate::pcapng::{self, INTERFACE, PACKET, SECTION};

/// Maximum number of bytes read. An analyzer writes fewer bytes between two acknowledgements.
const MOST: u64 = if cfg!(test) { 90_000 } else { 128 << 20 };

/// For this many nanoseconds after its first packet, an analyzer expects repeated batches.
const LONG: u64 = 600_000_000_000;

/// Every block is shorter than this. So if consecutive blocks together are at least this long, they
/// can't be the content of one packet.
const BLOCK: usize = if cfg!(test) { 1 << 12 } else { 1 << 17 };

/// The newest packets in the files that the previous analyzer left.
#[derive(Debug)]
pub(super) struct WrittenPackets {
    /// The hasher's random seed prevents senders from constructing two packets with the same hash.
    hasher: RandomState,
    /// How often each packet is in the files, by the packet's hash.
    packets: HashMap<u64, u32>,
    /// Until when nodes may send packets again that are in the files, in nanoseconds since 1970; 0
    /// if no packet has come yet.
    until: u64,
}

impl WrittenPackets {
    /// Reads the end of the newest files of a directory. Reports files that it can't read.
    pub(super) fn read(directory: &Path) -> Self {
        let mut written = Self {
            hasher: RandomState::new(),
            packets: HashMap::new(),
            until: 0,
        };
        let mut room = MOST;
        // If the directory can't be listed, writing fails and reports that.
        let files = ours(directory).unwrap_or_default();
        for path in files.iter().rev() {
            if room == 0 {
                break;
            }
            match end_of(path, room) {
                Ok(bytes) => {
                    room -= bytes.len() as u64;
                    for packet in packets(&bytes) {
                        let number = written.hasher.hash_one(packet);
                        *written.packets.entry(number).or_default() += 1;
                    }
                }
                Err(error) => streams::note(&format!(
                    "fanpcap analyzer: cannot read {}: {error}: its packets may be written \
                     again\n",
                    path.display()
                )),
            }
        }
        written
    }

    /// Whether a packet that comes at `now`, in nanoseconds since 1970, is in the files.
    pub(super) fn has(&mut self, packet: &Delivered<'_>, now: u64) -> bool {
        if self.until == 0 {
            self.until = now.saturating_add(LONG);
        } else if now > self.until {
            self.packets = HashMap::new();
        }
        if self.packets.is_empty() {
            return false;
        }
        let record = &packet.record;
        let stored: Stored<'_> = (record.stamp, pcapng::wire_length(record), record.captured);
        let number = self.hasher.hash_one(stored);
        let Some(left) = self.packets.get_mut(&number) else {
            return false;
        };
        *left -= 1;
        if *left == 0 {
            self.packets.remove(&number);
        }
        true
    }
}

/// Reads at most `most` bytes from the end of a file. Blocks end at multiples of four bytes.
fn end_of(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    if path.to_string_lossy().ends_with(COMPRESSED) {
        return end_of_stream(Decoder::new(file)?, most);
    }
    let length = file.metadata()?.len() & !3;
    let begin = length.saturating_sub(most & !3);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(length - begin).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Like [`end_of`], for a stream that can only be read from its beginning.
fn end_of_stream(mut from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let most = most & !3;
    let room = usize::try_from(most).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    let mut length = 0;
    loop {
        let read = from.by_ref().take(most + 4).read_to_end(&mut bytes)?;
        length += read;
        if read == 0 {
            break;
        }
        // Keeps three bytes more than `room`, because `truncate` below removes up to three bytes.
        bytes.drain(..bytes.len().saturating_sub(room.saturating_add(3)));
    }
    bytes.truncate(bytes.len() - length % 4);
    bytes.drain(..bytes.len().saturating_sub(room));
    Ok(bytes)
}

/// A packet in a file: its time stamp in nanoseconds, its length on the wire, its captured bytes.
type Stored<'a> = (u64, u32, &'a [u8]);

/// The packets at the end of `bytes`, the newest first. Skips a packet that was cut off.
fn packets(bytes: &[u8]) -> impl Iterator<Item = Stored<'_>> {
    let cuts = (0..=BLOCK.min(bytes.len())).step_by(4);
    let mut parts = cuts.map(|cut| &bytes[..bytes.len() - cut]);
    let is_whole = |part: &&[u8]| {
        let is_enough = |before: &[u8]| before.is_empty() || part.len() - before.len() > BLOCK;
        blocks(part).any(|(before, _)| is_enough(before))
    };
    let whole = parts.find(is_whole).unwrap_or_default();
    blocks(whole).filter_map(|(_, block)| stored(block))
}

/// The blocks at the end of `bytes`, in reverse order, each with the bytes before it.
fn blocks(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    std::iter::successors(last_block(bytes), |(before, _)| last_block(before))
}

fn last_block(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = word(bytes, bytes.len().checked_sub(4)?)?;
    let begin = bytes.len().checked_sub(length as usize)?;
    let is_kind = [SECTION, INTERFACE, PACKET].contains(&word(bytes, begin)?);
    let is_length = (12..=BLOCK).contains(&(length as usize));
    let is_block = is_kind && is_length && word(bytes, begin + 4)? == length;
    is_block.then(|| bytes.split_at(begin))
}

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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use fanpcap_cluster::record::Record;
    use fanpcap_cluster::{NodeId, Revision};
    use fanpcap_testkit::Scratch;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// A packet's content of this length, which looks like blocks of packets.
    fn content(length: usize) -> Vec<u8> {
        let mut block = vec![0; 32];
        block[..4].copy_from_slice(&PACKET.to_le_bytes());
        for at in [4, 28] {
            block[at..at + 4].copy_from_slice(&32_u32.to_le_bytes());
        }
        block.into_iter().cycle().take(length).collect()
    }

    /// Returns a file of packets with these lengths, the offset of the first packet's block, and
    /// the offset of each block's end.
    fn file(lengths: &[usize]) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = Vec::new();
        pcapng::section(&mut bytes);
        pcapng::interface(&mut bytes, 1, (NodeId(1), Revision(1)));
        let mut marks = vec![bytes.len()];
        for (stamp, length) in (0..).zip(lengths) {
            let packet = Delivered {
                revision: Revision(1),
                node: NodeId(1),
                link: 1,
                record: Record {
                    stamp,
                    wire_length: 1500,
                    bucket: 1,
                    marked: false,
                    captured: &content(*length),
                },
                late: false,
            };
            pcapng::packet(&mut bytes, 0, &packet);
            marks.push(bytes.len());
        }
        (bytes, marks)
    }

    proptest! {
        #[test]
        fn a_stream_ends_with_what_a_file_ends_with(
            content in vec(any::<u8>(), 0..400),
            most in 0..500_u64,
        ) {
            let scratch = Scratch::new().unwrap();
            let plain = scratch.file("plain");
            fs::write(&plain, &content).unwrap();
            let compressed = scratch.file("compressed.zst");
            fs::write(&compressed, zstd::encode_all(&content[..], 1).unwrap()).unwrap();
            let end = end_of(&plain, most).unwrap();
            prop_assert_eq!(end_of(&compressed, most).unwrap(), end);
        }
    }

    /// Words that occur in pcapng files, but hardly ever in random bytes.
    fn words() -> impl Strategy<Value = Vec<u32>> {
        let known = prop::sample::select(vec![SECTION, INTERFACE, PACKET, 12, 16, 32, u32::MAX]);
        vec(prop_oneof![known, 0..64_u32, any::<u32>()], 0..200)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn no_file_makes_it_panic(words in words(), cut in 0..4_usize) {
            let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
            let read = packets(&bytes[..bytes.len().saturating_sub(cut)]).count();
            prop_assert!(read <= bytes.len() / 12);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn a_cut_costs_no_whole_packet(
            lengths in vec(0..1500_usize, 1..40),
            begin in any::<prop::sample::Index>(),
            end in any::<prop::sample::Index>(),
        ) {
            let (bytes, marks) = file(&lengths);
            let end = end.index(bytes.len() + 1) & !3;
            let begin = begin.index(end + 1) & !3;
            let whole = (0..).zip(marks.windows(2));
            let whole: Vec<(u64, &[usize])> = whole
                .filter(|(_, mark)| mark[0] >= begin && mark[1] <= end)
                .collect();
            let bytes_of_whole: usize = whole.iter().map(|(_, mark)| mark[1] - mark[0]).sum();
            let read: Vec<u64> = packets(&bytes[begin..end]).map(|(stamp, ..)| stamp).collect();
            // If the read bytes do not include the file's beginning, blocks are recognized only if
            // together they are longer than any single block can be.
            if begin == 0 || bytes_of_whole > BLOCK {
                let expected: Vec<u64> = whole.into_iter().rev().map(|(stamp, _)| stamp).collect();
                prop_assert_eq!(read, expected);
            }
        }
    }
}
