//! The capture that a merge writes: pcap or pcapng.

use std::borrow::Cow;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{PcapNgBlock, PcapNgWriter};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use std::time::Duration;

use crate::interface::Interface;
use crate::reader::Packet;
use crate::source::Source;

/// Format of the merged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// One link type for all packets.
    Pcap,
    /// Several interfaces, each with its link type.
    PcapNg,
}

impl Format {
    /// The format by the file's name: pcapng for `.pcapng` and `.ntar`, and pcap for any other
    /// name.
    pub(crate) fn of(path: &Path) -> Self {
        let extension = path
            .extension()
            .map(|extension| extension.to_ascii_lowercase());
        match extension
            .as_deref()
            .and_then(|extension| extension.to_str())
        {
            Some("pcapng" | "ntar") => Self::PcapNg,
            _ => Self::Pcap,
        }
    }
}

/// The file that the merge writes.
pub(crate) struct Sink<'a> {
    writer: Writer<'a>,
    /// Name in error messages.
    name: String,
    /// Nanoseconds in one unit of the timestamps.
    unit: u64,
    /// The interfaces described so far. In a pcapng, an interface's index here is its number.
    interfaces: Vec<Interface>,
}

enum Writer<'a> {
    Pcap(PcapWriter<&'a mut dyn Write>, DataLink),
    PcapNg(PcapNgWriter<&'a mut dyn Write>),
}

impl<'a> Sink<'a> {
    /// Begins a file for the packets of `sources`, with their finest precision and largest snapshot
    /// length.
    ///
    /// # Errors
    /// A pcap would have several link types, or the file can't be written.
    pub(crate) fn new(
        format: Format,
        sources: &[Source],
        (name, writer): (&str, &'a mut dyn Write),
    ) -> Result<Self> {
        let mut interfaces: Vec<Interface> = Vec::new();
        let of_all = || sources.iter().flat_map(Source::interfaces);
        for interface in of_all() {
            match interfaces.iter_mut().find(|known| known.is_like(interface)) {
                Some(known) => known.snaplen = wider(known.snaplen, interface.snaplen),
                None => interfaces.push(interface.clone()),
            }
        }
        let fine = of_all().any(Interface::is_fine);
        let mut sink = Self {
            writer: match format {
                Format::Pcap => pcap(&interfaces, fine, (name, writer))?,
                Format::PcapNg => Writer::PcapNg(
                    PcapNgWriter::new(writer).map_err(|error| unwritten(name, error))?,
                ),
            },
            name: name.to_owned(),
            unit: if fine { 1 } else { 1000 },
            interfaces: Vec::new(),
        };
        for interface in interfaces {
            sink.describe(interface)?;
        }
        Ok(sink)
    }

    /// Writes a packet of `source`.
    ///
    /// # Errors
    /// The file can't be written, or is a pcap of another link type.
    pub(crate) fn write(&mut self, source: &Source, packet: Packet) -> Result<()> {
        let from = &source.interfaces()[packet.interface];
        let interface = match self.interfaces.iter().position(|known| known.is_like(from)) {
            Some(known) => known,
            // When the merged file was begun, the source had not described this interface yet.
            None => self.describe(from.clone())?,
        };
        match &mut self.writer {
            Writer::Pcap(writer, link) => {
                ensure!(from.link == *link, "{}", several_links(*link, from.link));
                writer
                    .write_raw_packet(&raw(&packet, self.unit)?)
                    .map_err(|error| unwritten(&self.name, error))?;
            }
            Writer::PcapNg(writer) => {
                let block = EnhancedPacketBlock {
                    interface_id: u32::try_from(interface)?,
                    // The crate `pcap_file` writes each nanosecond as one unit of the interface, so
                    // pass the number of units.
                    timestamp: Duration::from_nanos(packet.stamp / self.unit),
                    original_len: packet.original_len,
                    data: Cow::Owned(packet.data),
                    options: packet.options,
                };
                writer
                    .write_block(&block.into_block())
                    .map_err(|error| unwritten(&self.name, error))?;
            }
        }
        Ok(())
    }

    /// Adds an interface and returns its number.
    fn describe(&mut self, interface: Interface) -> Result<usize> {
        if let Writer::PcapNg(writer) = &mut self.writer {
            let resolution = if self.unit == 1 { 9 } else { 6 };
            let mut options = vec![InterfaceDescriptionOption::IfTsResol(resolution)];
            options.extend(interface.options.iter().cloned());
            let block = InterfaceDescriptionBlock {
                linktype: interface.link,
                snaplen: interface.snaplen,
                options,
            };
            writer
                .write_block(&block.into_block())
                .map_err(|error| unwritten(&self.name, error))?;
        }
        self.interfaces.push(interface);
        Ok(self.interfaces.len() - 1)
    }
}

fn pcap<'a>(
    interfaces: &[Interface],
    fine: bool,
    (name, writer): (&str, &'a mut dyn Write),
) -> Result<Writer<'a>> {
    let first = interfaces.first();
    let datalink = first.map_or(DataLink::ETHERNET, |first| first.link);
    if let Some(other) = interfaces.iter().find(|other| other.link != datalink) {
        bail!("{}", several_links(datalink, other.link));
    }
    let snaplens = interfaces.iter().map(|interface| interface.snaplen);
    let header = PcapHeader {
        datalink,
        snaplen: match snaplens.reduce(wider).unwrap_or(0) {
            0 => MAXIMUM_SNAPLEN,
            snaplen => snaplen,
        },
        ts_resolution: if fine {
            TsResolution::NanoSecond
        } else {
            TsResolution::MicroSecond
        },
        endianness: Endianness::native(),
        ..PcapHeader::default()
    };
    Ok(Writer::Pcap(
        PcapWriter::with_header(writer, header).map_err(|error| unwritten(name, error))?,
        datalink,
    ))
}

fn raw(packet: &Packet, unit: u64) -> Result<RawPcapPacket<'_>> {
    let (seconds, rest) = (packet.stamp / SECOND, packet.stamp % SECOND);
    Ok(RawPcapPacket {
        ts_sec: u32::try_from(seconds)
            .context("a time stamp after 2106, which pcap can't store")?,
        ts_frac: u32::try_from(rest / unit)?,
        incl_len: u32::try_from(packet.data.len())?,
        orig_len: packet.original_len,
        data: Cow::Borrowed(&packet.data),
    })
}

/// The error of a failed write. Keeps only the inner I/O error, because the crate `pcap_file`
/// reports every I/O failure as a failed read.
fn unwritten(name: &str, error: PcapError) -> anyhow::Error {
    let error = if let PcapError::IoError(error) = error {
        error.into()
    } else {
        anyhow::Error::from(error)
    };
    error.context(format!("writing {name}"))
}

fn several_links(one: DataLink, other: DataLink) -> String {
    format!(
        "captures of several link types ({one:?}, {other:?}) don't fit into one pcap: name the file *.pcapng"
    )
}

/// The larger of two snapshot lengths; 0 means no limit.
fn wider(one: u32, other: u32) -> u32 {
    if one == 0 || other == 0 {
        0
    } else {
        one.max(other)
    }
}

/// libpcap's MAXIMUM_SNAPLEN (pcap-int.h).
const MAXIMUM_SNAPLEN: u32 = 262_144;
const SECOND: u64 = 1_000_000_000;
