//! Savefiles: what a thread captures, written as it comes.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use fanpcap_linux::pcap::{Handle, Header, Precision};
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
use pcap_file::{DataLink, Endianness, TsResolution};

/// In a file's name, what stands for the thread's number.
pub(super) const THREAD: &str = "%i";

/// The savefile of a thread. libpcap's own writer does not tell when the disk is full; this one does.
pub(super) struct Savefile {
    path: PathBuf,
    writer: PcapWriter<BufWriter<File>>,
}

impl Savefile {
    /// Begins the file for what `handle` reads.
    pub(super) fn create(pattern: &str, thread: usize, handle: &Handle) -> Result<Self> {
        let path = PathBuf::from(pattern.replace(THREAD, &thread.to_string()));
        let create = || -> Result<_> {
            let file = BufWriter::with_capacity(BUFFER, File::create(&path)?);
            Ok(PcapWriter::with_header(file, header(handle))?)
        };
        let writer = create().with_context(|| format!("making {}", path.display()))?;
        Ok(Self { path, writer })
    }

    /// Adds a packet.
    pub(super) fn write(&mut self, header: &Header, bytes: &[u8]) -> Result<()> {
        let packet = RawPcapPacket {
            ts_sec: low(header.seconds),
            ts_frac: low(header.fraction),
            incl_len: header.caplen,
            orig_len: header.len,
            data: Cow::Borrowed(bytes),
        };
        let written = self.writer.write_raw_packet(&packet);
        written.with_context(|| format!("writing {}", self.path.display()))?;
        Ok(())
    }

    /// Writes what is still held back.
    pub(super) fn finish(self) -> Result<()> {
        let written = self.writer.into_writer().flush();
        written.with_context(|| format!("writing {}", self.path.display()))
    }
}

fn header(handle: &Handle) -> PcapHeader {
    PcapHeader {
        snaplen: handle.snaplen().unsigned_abs(),
        datalink: DataLink::from(link_type(handle.datalink())),
        ts_resolution: match handle.tstamp_precision() {
            Precision::Micro => TsResolution::MicroSecond,
            Precision::Nano => TsResolution::NanoSecond,
        },
        endianness: Endianness::native(),
        ..PcapHeader::default()
    }
}

/// The number in a file for libpcap's number in a program, where they differ on Linux (libpcap,
/// pcap-common.c, `map`).
fn link_type(datalink: i32) -> u32 {
    match datalink {
        11 => 100, // ATM_RFC1483
        12 => 101, // RAW
        15 => 102, // SLIP_BSDOS
        16 => 103, // PPP_BSDOS
        19 => 106, // ATM_CLIP
        same => same.unsigned_abs(),
    }
}

/// The low 32 bits, which are all that the format has.
fn low(number: i64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Bytes that are written at a time.
const BUFFER: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_link_types_have_one_number() {
        assert_eq!([1, 12, 113, 276].map(link_type), [1, 101, 113, 276]);
        assert_eq!(low(1_700_000_000), 1_700_000_000);
    }
}
