//! Reads the packets of a capture file, in the file's order. The file is pcap or pcapng, of any
//! byte order and precision, and may be compressed by zstd.

use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{Endianness, PcapError, PcapResult};
use zstd::stream::read::Decoder;

use crate::interface::Interface;

/// Magic numbers of pcapng, and of pcap in both precisions and byte orders.
const MAGICS: [[u8; 4]; 5] = [
    [0x0a, 0x0d, 0x0d, 0x0a],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
];

/// The magic number of a file that zstd has compressed (RFC 8878).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Whether a file that starts with `head` is a capture; `None` if `head` is too short.
pub fn is_capture(head: &[u8]) -> Option<bool> {
    match head.get(..4) {
        Some(head) => Some(MAGICS.iter().any(|magic| magic == head)),
        None if MAGICS.iter().any(|magic| magic.starts_with(head)) => None,
        None => Some(false),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Nanoseconds since 1970.
    pub(crate) stamp: u64,
    /// Index among the file's interfaces.
    pub(crate) interface: usize,
    /// Bytes on the wire.
    pub(crate) original_len: u32,
    /// Bytes captured.
    pub(crate) data: Vec<u8>,
    pub(crate) options: Vec<EnhancedPacketOption<'static>>,
    /// pcapng's `epb_queue`.
    pub(crate) queue: Option<u32>,
}

/// A capture file.
pub(crate) struct Reader {
    format: Format,
    /// All interfaces so far, including those of earlier pcapng sections.
    interfaces: Vec<Interface>,
    /// Index of the first interface of the present section.
    section: usize,
    /// The timestamp of the packet read last, which a packet without a timestamp gets too.
    last: u64,
}

enum Format {
    Pcap(PcapReader<Pieces>),
    PcapNg(PcapNgReader<Pieces>),
}

/// The next item of a file.
pub(crate) enum Next {
    Packet(Packet),
    /// The end of the file.
    End,
    /// An incomplete item: the file was cut.
    Cut,
}

impl Reader {
    /// Opens a capture; `None` if the file ends within its header.
    ///
    /// # Errors
    /// The file can't be read, or is not a capture.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>> {
        let (head, pieces) = match Pieces::of(path) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            opened => opened?,
        };
        match is_capture(&head) {
            Some(true) => {}
            None => return Ok(None),
            Some(false) => bail!("neither pcap nor pcapng"),
        }
        let format = if head == MAGICS[0] {
            PcapNgReader::new(pieces).map(Format::PcapNg)
        } else {
            PcapReader::new(pieces).map(Format::Pcap)
        };
        let format = match format {
            Ok(format) => format,
            Err(error) if is_cut(&error) => return Ok(None),
            Err(error) => return Err(error).context("the header"),
        };
        let interfaces = match &format {
            Format::Pcap(reader) => vec![Interface::of_pcap(&reader.header())],
            Format::PcapNg(_) => Vec::new(),
        };
        Ok(Some(Self {
            format,
            interfaces,
            section: 0,
            last: 0,
        }))
    }

    /// The interfaces described so far.
    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The next packet.
    ///
    /// # Errors
    /// The file can't be read, or is damaged before its end.
    pub(crate) fn next(&mut self) -> Result<Next> {
        let next = match &mut self.format {
            Format::Pcap(reader) => next_of_pcap(reader, &self.interfaces[0]),
            Format::PcapNg(_) => self.next_of_pcapng(),
        };
        match next {
            Ok(Some(packet)) => {
                self.last = packet.stamp;
                Ok(Next::Packet(packet))
            }
            Ok(None) => Ok(Next::End),
            Err(error) if is_cut(&error) => Ok(Next::Cut),
            Err(error) => Err(error.into()),
        }
    }

    fn next_of_pcapng(&mut self) -> PcapResult<Option<Packet>> {
        let Format::PcapNg(reader) = &mut self.format else {
            return Ok(None);
        };
        loop {
            let little = reader.section().endianness == Endianness::Little;
            let Some(block) = reader.next_block() else {
                return Ok(None);
            };
            let mut found = match block? {
                Block::SectionHeader(_) => {
                    self.section = self.interfaces.len();
                    continue;
                }
                Block::InterfaceDescription(block) => {
                    self.interfaces
                        .push(Interface::of_pcapng(&block.into_owned()));
                    continue;
                }
                Block::EnhancedPacket(block) => Found {
                    interface: block.interface_id,
                    // The crate `pcap_file` takes each of the file's units for a nanosecond.
                    units: u64::try_from(block.timestamp.as_nanos()).ok(),
                    original_len: block.original_len,
                    data: block.data.into_owned(),
                    options: (block.options.into_iter())
                        .map(EnhancedPacketOption::into_owned)
                        .collect(),
                },
                Block::Packet(block) => Found {
                    interface: block.interface_id.into(),
                    // The timestamp is two words, with the high word first in both byte orders. In
                    // a little-endian file, the crate's number has the words in the wrong order.
                    units: Some(block.timestamp.rotate_left(if little { 32 } else { 0 })),
                    original_len: block.original_len,
                    data: block.data.into_owned(),
                    options: Vec::new(),
                },
                Block::SimplePacket(block) => Found {
                    interface: 0,
                    units: None,
                    original_len: block.original_len,
                    data: block.data.into_owned(),
                    options: Vec::new(),
                },
                Block::InterfaceStatistics(_)
                | Block::NameResolution(_)
                | Block::SystemdJournalExport(_)
                | Block::Unknown(_) => continue,
            };
            let number = self.section + found.interface as usize;
            let Some(interface) = self.interfaces.get(number) else {
                return Err(PcapError::InvalidInterfaceId(found.interface));
            };
            found.trim(interface);
            let queue = queue(&found.options, little);
            return Ok(Some(Packet {
                stamp: found
                    .units
                    .map_or(self.last, |units| interface.stamp(units)),
                interface: number,
                original_len: found.original_len,
                data: found.data,
                options: found.options,
                queue,
            }));
        }
    }
}

/// The option `epb_queue`, whose code is 6. The crate `pcap_file` does not know this option, so its
/// value has the file's byte order.
fn queue(options: &[EnhancedPacketOption<'_>], little: bool) -> Option<u32> {
    let value = options.iter().find_map(|option| {
        let EnhancedPacketOption::Unknown(option) = option else {
            return None;
        };
        (option.code == 6).then_some(&option.value[..])
    })?;
    let value = value.try_into().ok()?;
    Some(match little {
        true => u32::from_le_bytes(value),
        false => u32::from_be_bytes(value),
    })
}

/// A packet before its interface is looked up.
struct Found {
    interface: u32,
    units: Option<u64>,
    original_len: u32,
    data: Vec<u8>,
    options: Vec<EnhancedPacketOption<'static>>,
}

impl Found {
    /// Truncates the data of a simple packet block. Such a block has no captured length: the length
    /// is the smaller one of the original length and the snapshot length.
    fn trim(&mut self, interface: &Interface) {
        if self.units.is_none() {
            let snaplen = match interface.snaplen {
                0 => u32::MAX,
                snaplen => snaplen,
            };
            self.data.truncate(self.original_len.min(snaplen) as usize);
        }
    }
}

fn next_of_pcap(
    reader: &mut PcapReader<Pieces>,
    interface: &Interface,
) -> PcapResult<Option<Packet>> {
    let Some(raw) = reader.next_raw_packet().transpose()? else {
        return Ok(None);
    };
    let units_a_second = if interface.is_fine() {
        1_000_000_000
    } else {
        1_000_000
    };
    let units = u64::from(raw.ts_sec) * units_a_second + u64::from(raw.ts_frac);
    Ok(Some(Packet {
        stamp: interface.stamp(units),
        interface: 0,
        original_len: raw.orig_len,
        data: raw.data.into_owned(),
        options: Vec::new(),
        queue: None,
    }))
}

fn is_cut(error: &PcapError) -> bool {
    matches!(error, PcapError::IoError(error) if error.kind() == ErrorKind::UnexpectedEof)
        || matches!(error, PcapError::IncompleteBuffer)
}

/// Reads a capture in pieces. The reader's buffer has the size of the largest packet, but reading
/// in pieces touches only the needed part of the buffer.
struct Pieces(Box<dyn Read + Send>);

impl Pieces {
    /// A capture's first four bytes, and all of them: those of the file, or those that zstd has
    /// compressed into the file.
    fn of(path: &Path) -> io::Result<(Vec<u8>, Self)> {
        let (head, pieces) = Self::begin(File::open(path)?)?;
        match head == ZSTD {
            true => Self::begin(Decoder::new(pieces)?),
            false => Ok((head, pieces)),
        }
    }

    fn begin(mut from: impl Read + Send + 'static) -> io::Result<(Vec<u8>, Self)> {
        let mut head = Vec::new();
        from.by_ref().take(4).read_to_end(&mut head)?;
        let all = Cursor::new(head.clone()).chain(from);
        Ok((head, Self(Box::new(all))))
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(PIECE);
        self.0.read(&mut buffer[..len])
    }
}

const PIECE: usize = 256 << 10;
