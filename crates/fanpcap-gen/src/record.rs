//! Reads the packets of capture files, pcap and pcapng.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow, bail};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};

/// One packet of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since 1970, or since the file's own epoch.
    pub time: u64,
    /// The captured bytes, including the link-layer header.
    pub bytes: Vec<u8>,
    /// The length on the wire in bytes, without a check sequence.
    pub len: u32,
}

impl Record {
    /// Whether the capture contains only a part of the packet.
    pub fn is_shortened(&self) -> bool {
        self.len as usize > self.bytes.len()
    }
}

/// The packets of a file, in order.
pub struct Records {
    path: PathBuf,
    format: Format,
    last_time: u64,
    done: bool,
    /// Number of packets so far.
    count: u64,
    cut: bool,
    /// Bytes of the check sequence at the end of each packet.
    check_len: u32,
}

enum Format {
    Pcap(Box<PcapReader<BufReader<File>>>),
    PcapNg(Box<PcapNgReader<BufReader<File>>>),
}

impl Records {
    /// Opens a file of Ethernet frames.
    ///
    /// # Errors
    /// The file can't be read, is not a capture file, or has another link type.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display();
        let unreadable = |error| anyhow!("{name}: {error}");
        let malformed = |error| malformed(path, error);
        let mut file = File::open(path).map_err(unreadable)?;
        let mut magic = Vec::new();
        let begin = file.by_ref().take(4).read_to_end(&mut magic);
        begin.and_then(|_| file.rewind()).map_err(unreadable)?;
        if magic.is_empty() {
            bail!("{name}: no packets");
        }
        if let Some((_, tool)) = COMPRESSED
            .iter()
            .find(|(begin, _)| magic.starts_with(begin))
        {
            bail!("{name}: it is compressed; decompress it first, as by {tool}");
        }
        let mut check_len = 0;
        let file = BufReader::new(file);
        let format = if magic == PCAPNG {
            Format::PcapNg(Box::new(PcapNgReader::new(file).map_err(malformed)?))
        } else if !PCAP.iter().any(|known| magic == known) {
            bail!("{name}: neither pcap nor pcapng");
        } else {
            let reader = PcapReader::new(file).map_err(malformed)?;
            let link = u32::from(reader.header().datalink);
            if link & LINK_TYPE != u32::from(DataLink::ETHERNET) {
                return Err(no_ethernet(path, link & LINK_TYPE));
            }
            if link & HAS_CHECK_LEN != 0 {
                check_len = 2 * (link >> 28);
            }
            Format::Pcap(Box::new(reader))
        };
        Ok(Self {
            path: path.to_owned(),
            format,
            last_time: 0,
            done: false,
            count: 0,
            cut: false,
            check_len,
        })
    }

    /// Whether the file ends within a packet, as far as it was read. The records do not include the
    /// partial packet.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    fn read(&mut self) -> Result<Option<Record>> {
        let malformed = |error| malformed(&self.path, error);
        match &mut self.format {
            Format::Pcap(reader) => {
                let fraction = match reader.header().ts_resolution {
                    TsResolution::MicroSecond => 1000,
                    TsResolution::NanoSecond => 1,
                };
                let Some(packet) = reader.next_raw_packet() else {
                    return Ok(None);
                };
                let packet = packet.map_err(malformed)?;
                // Remove the check sequence: a device appends its own.
                let frame_len = packet.orig_len.saturating_sub(self.check_len);
                let mut bytes = packet.data.into_owned();
                if self.check_len > 0 {
                    bytes.truncate(frame_len as usize);
                }
                Ok(Some(Record {
                    time: u64::from(packet.ts_sec) * SECOND + u64::from(packet.ts_frac) * fraction,
                    len: frame_len,
                    bytes,
                }))
            }
            Format::PcapNg(reader) => loop {
                let Some(block) = reader.next_block() else {
                    return Ok(None);
                };
                let found = packet(block.map_err(malformed)?);
                let Some(found) = found else {
                    continue;
                };
                let interface = usize::try_from(found.interface).ok();
                let interface = interface.and_then(|number| reader.interfaces().get(number));
                let unknown = PcapError::InvalidInterfaceId(found.interface);
                let interface = interface.ok_or_else(|| malformed(unknown))?;
                return finish(found, interface, self.last_time)
                    .map(Some)
                    .map_err(|link| no_ethernet(&self.path, link));
            },
        }
    }
}

/// A packet's block, before its interface is looked up.
struct Found {
    interface: u32,
    ticks: Option<u64>,
    original_len: u32,
    /// Whether the block is a simple packet block. Such a block has no captured length, so the
    /// interface's snapshot length limits the bytes.
    simple: bool,
    bytes: Vec<u8>,
}

fn packet(block: Block<'_>) -> Option<Found> {
    let (interface, ticks, simple, original_len, data) = match block {
        // The crate `pcap_file` takes the file's ticks for nanoseconds, so `as_nanos` returns the
        // ticks.
        Block::EnhancedPacket(it) => {
            let ticks = u64::try_from(it.timestamp.as_nanos()).ok();
            (it.interface_id, ticks, false, it.original_len, it.data)
        }
        Block::SimplePacket(it) => (0, None, true, it.original_len, it.data),
        Block::Packet(it) => {
            let interface = it.interface_id.into();
            (interface, None, false, it.original_len, it.data)
        }
        Block::SectionHeader(_)
        | Block::InterfaceDescription(_)
        | Block::NameResolution(_)
        | Block::InterfaceStatistics(_)
        | Block::SystemdJournalExport(_)
        | Block::Unknown(_) => return None,
    };
    Some(Found {
        interface,
        ticks,
        simple,
        original_len,
        bytes: data.into_owned(),
    })
}

/// Returns the record. The error is the interface's link type, if it is not Ethernet. A packet
/// without a timestamp gets the timestamp of the packet before it.
fn finish(
    mut found: Found,
    interface: &InterfaceDescriptionBlock<'_>,
    last_time: u64,
) -> Result<Record, u32> {
    if interface.linktype != DataLink::ETHERNET {
        return Err(interface.linktype.into());
    }
    // A simple packet block is padded to four bytes.
    if found.simple {
        found.bytes.truncate(found.original_len as usize);
    }
    if found.simple && interface.snaplen > 0 {
        found.bytes.truncate(interface.snaplen as usize);
    }
    let resolution = interface.options.iter().find_map(|option| {
        let InterfaceDescriptionOption::IfTsResol(resolution) = option else {
            return None;
        };
        Some(*resolution)
    });
    let resolution = resolution.unwrap_or(MICROSECONDS);
    let ticks = found.ticks;
    Ok(Record {
        time: ticks.map_or(last_time, |ticks| nanoseconds(ticks, resolution)),
        len: found.original_len,
        bytes: found.bytes,
    })
}

/// Converts `ticks` to nanoseconds. A tick is 10^-n seconds, or 2^-n seconds if the highest bit of
/// `resolution` is set; the other bits are n (pcapng, if_tsresol).
fn nanoseconds(ticks: u64, resolution: u8) -> u64 {
    let exponent = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let unit = base.checked_pow(exponent).unwrap_or(u128::MAX);
    u64::try_from(u128::from(ticks) * u128::from(SECOND) / unit).unwrap_or(u64::MAX)
}

fn malformed(path: &Path, error: PcapError) -> Error {
    let text = format!("{}: {error}", path.display());
    Error::new(error).context(text)
}

fn no_ethernet(path: &Path, link: u32) -> Error {
    let path = path.display();
    anyhow!("{path}: packets of link type {link}, only Ethernet's (1) can be read")
}

/// Whether the error is an unexpected end of the file.
fn ends_within(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(PcapError::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof)
}

impl Iterator for Records {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let read = self.read().transpose();
        if self.count > 0 && matches!(&read, Some(Err(error)) if ends_within(error)) {
            self.cut = true;
            self.done = true;
            return None;
        }
        match &read {
            Some(Ok(record)) => {
                self.last_time = record.time;
                self.count += 1;
            }
            Some(Err(_)) | None => self.done = true,
        }
        read
    }
}

/// Magic numbers of pcap, with micro- and with nanoseconds, in both byte orders.
const PCAP: [[u8; 4]; 4] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
];
/// Type of pcapng's section header block, equal in both byte orders.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Magic numbers of compressed files, and their decompressors: gzip, Zstandard, xz, bzip2.
const COMPRESSED: [(&[u8], &str); 4] = [
    (&[0x1f, 0x8b], "zcat"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstdcat"),
    (&[0xfd, b'7', b'z', b'X'], "xzcat"),
    (b"BZh", "bzcat"),
];
/// The upper bits of a pcap's link type contain the length of check sequences in 16-bit units, if
/// known (pcap file format, LinkType and additional information).
const LINK_TYPE: u32 = 0xffff;
const HAS_CHECK_LEN: u32 = 0x0400_0000;
const MICROSECONDS: u8 = 6;
const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_nanoseconds_whatever_the_file_counts_in() {
        assert_eq!(nanoseconds(5, 6), 5000);
        assert_eq!(nanoseconds(5, 9), 5);
        assert_eq!(nanoseconds(5_000, 12), 5);
        assert_eq!(nanoseconds(3, 0), 3 * SECOND);
        assert_eq!(nanoseconds(1 << 20, 0x80 | 20), SECOND);
    }
}
