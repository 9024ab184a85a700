//! Savefiles: each thread writes the packets that it captures.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fanpcap_pcap::{Handle, Header, Precision};
use pcap_file::pcap::{PcapHeader, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};

/// Placeholder for the thread's number in a file name.
pub const THREAD: &str = "%i";

/// Creates the threads' savefiles, a separate file for each thread.
#[derive(Debug, Default)]
pub struct Savefiles {
    /// Device and inode of the file that is read.
    source: Option<(u64, u64)>,
    /// Device and inode of each file that is written.
    made: BTreeSet<(u64, u64)>,
}

impl Savefiles {
    /// Prepares savefiles that must differ from `source`, the file that is read.
    pub fn beside(source: Option<&Path>) -> Result<Self> {
        let mut savefiles = Self::default();
        if let Some(source) = source {
            let stdin = source == Path::new("-");
            let path = if stdin { Path::new(STDIN) } else { source };
            let facts = fs::metadata(path).with_context(|| format!("{}", source.display()))?;
            savefiles.source = identity(&facts);
        }
        Ok(savefiles)
    }

    /// Creates a thread's savefile for the packets of `handle`.
    pub fn create(&mut self, pattern: &str, thread: usize, handle: &Handle) -> Result<Savefile> {
        let path = PathBuf::from(pattern.replace(THREAD, &thread.to_string()));
        let made = self.open(&path).and_then(|file| {
            let held = PcapWriter::with_header(Vec::new(), header(handle))?.into_writer();
            Ok(Savefile::new(path.clone(), file, held))
        });
        made.with_context(|| format!("making {}", path.display()))
    }

    /// Opens a file and compares its device and inode with those of the other savefiles before
    /// truncating it: two names may be links to the same file.
    fn open(&mut self, path: &Path) -> Result<File> {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        let identity = identity(&file.metadata()?);
        if identity.is_some() && identity == self.source {
            bail!("--read reads this file, and writing would destroy it; name another file");
        }
        if identity.is_some_and(|identity| !self.made.insert(identity)) {
            bail!(
                "another thread writes this file under another name; name a separate file for each"
            );
        }
        if identity.is_some() {
            file.set_len(0)?;
        }
        Ok(file)
    }
}

/// Standard input as a file.
const STDIN: &str = "/dev/stdin";

/// Device and inode, which identify a file under any name. `None` for a device or a pipe, to which
/// several threads may write.
fn identity(facts: &fs::Metadata) -> Option<(u64, u64)> {
    facts.is_file().then(|| (facts.dev(), facts.ino()))
}

/// A thread's savefile. libpcap's own writer does not report a full disk; this writer does, and it
/// counts the packets in the file.
#[derive(Debug)]
pub struct Savefile<F = File> {
    path: PathBuf,
    file: F,
    /// Bytes that are not yet in the file.
    held: Vec<u8>,
    /// Offsets in `held` where packets end.
    ends: Vec<usize>,
    /// Number of complete packets in the file.
    pub(crate) written: u64,
}

impl<F: Write> Savefile<F> {
    fn new(path: PathBuf, file: F, held: Vec<u8>) -> Self {
        Self {
            path,
            file,
            held,
            ends: Vec::new(),
            written: 0,
        }
    }

    /// Adds a packet.
    pub(crate) fn write(&mut self, header: &Header, bytes: &[u8]) -> Result<()> {
        let words = [
            low(header.seconds),
            low(header.fraction),
            header.caplen,
            header.len,
        ];
        self.held
            .extend(words.into_iter().flat_map(u32::to_ne_bytes));
        self.held.extend_from_slice(bytes);
        self.ends.push(self.held.len());
        if self.held.len() >= BUFFER {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the buffered bytes. Bytes that can't be written are discarded.
    pub(crate) fn flush(&mut self) -> Result<()> {
        let (done, written) = write_most(&mut self.file, &self.held);
        let whole = self.ends.partition_point(|&end| end <= done);
        self.written += u64::try_from(whole)?;
        self.held.clear();
        self.ends.clear();
        written.with_context(|| format!("writing {}", self.path.display()))
    }
}

/// Writes all bytes. Returns the number of bytes written, with the error if not all bytes could be
/// written.
fn write_most(file: &mut impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while let Some(rest @ [_, ..]) = bytes.get(done..) {
        match file.write(rest) {
            Ok(0) => return (done, Err(ErrorKind::WriteZero.into())),
            Ok(more) => done += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
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

/// The link type's number in a file. On Linux it differs from the DLT in these cases (libpcap,
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

/// The low 32 bits: the pcap format has no more for this number.
fn low(number: i64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Number of buffered bytes at which the buffer is written to the file.
const BUFFER: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_link_types_have_one_number() {
        assert_eq!([1, 12, 113, 276].map(link_type), [1, 101, 113, 276]);
        assert_eq!(low(1_700_000_000), 1_700_000_000);
    }

    /// A disk with room for this many bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn of_a_full_disk_the_whole_packets_are_counted() {
        // 24 bytes of file header; packets with a header of 16 bytes and 4 bytes of data.
        let mut savefile = Savefile::new("full".into(), Disk(24 + 3 * 20 + 7), vec![0; 24]);
        let packet = Header {
            caplen: 4,
            len: 60,
            ..Header::default()
        };
        for _ in 0..5 {
            savefile.write(&packet, &[1, 2, 3, 4]).unwrap();
        }
        assert_eq!(savefile.written, 0);
        let error = savefile.flush().unwrap_err();
        assert_eq!(error.to_string(), "writing full");
        let cause = error.downcast_ref::<io::Error>().unwrap();
        assert_eq!(cause.kind(), ErrorKind::StorageFull);
        assert_eq!(savefile.written, 3);
        // The writer must not try again: it would write complete packets after an incomplete one.
        savefile.flush().unwrap();
        assert_eq!(savefile.written, 3);
    }
}
