//! Why a file can't be replayed.

use std::fmt;
use std::io;
use std::path::PathBuf;

use pcap_file::PcapError;

/// Why a file can't be replayed.
#[derive(Debug)]
pub enum ReplayError {
    /// It can't be opened or read.
    Open(PathBuf, io::Error),
    /// It is no capture file, or is broken.
    Format(PathBuf, PcapError),
    /// Its packets have this link type, not Ethernet's.
    Link(PathBuf, u32),
    /// It has no packet.
    Empty(PathBuf),
    /// It has one that is too short to be a frame, after so many others.
    Short(PathBuf, u64),
    /// It has one of so many bytes, more than any device takes.
    Long(PathBuf, usize),
    /// It has one that is too long for the device.
    TooLong {
        /// The file.
        path: PathBuf,
        /// The packet's place in the file, from 1 on.
        packet: u64,
        /// Its length.
        len: usize,
        /// The longest that the device takes.
        most: usize,
    },
    /// It is compressed; this tool decompresses it.
    Compressed(PathBuf, &'static str),
}

impl ReplayError {
    /// Whether the file ends where more should be.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Format(_, PcapError::IoError(error)) if error.kind() == io::ErrorKind::UnexpectedEof)
    }
}

impl fmt::Display for ReplayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Format(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Link(path, link) => write!(
                f,
                "{}: packets of link type {link}, only Ethernet's (1) can be read",
                path.display()
            ),
            Self::Empty(path) => write!(f, "{}: no packets", path.display()),
            Self::Short(path, before) => write!(
                f,
                "{}: packet {} is shorter than an Ethernet header",
                path.display(),
                before + 1
            ),
            Self::TooLong {
                path,
                packet,
                len,
                most,
            } => write!(
                f,
                "{}: packet {packet} has {len} bytes, the device takes {most} at most; raise its MTU, or \
                 leave out such packets with --skip-long",
                path.display()
            ),
            Self::Compressed(path, tool) => write!(
                f,
                "{}: it is compressed; decompress it first, as by {tool}",
                path.display()
            ),
            Self::Long(path, len) => write!(f, "{}: a packet of {len} bytes", path.display()),
        }
    }
}

impl std::error::Error for ReplayError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Open(_, error) => Some(error),
            Self::Format(_, error) => Some(error),
            Self::Link(..)
            | Self::Empty(_)
            | Self::Short(..)
            | Self::TooLong { .. }
            | Self::Compressed(..)
            | Self::Long(..) => None,
        }
    }
}
