//! DiCAP's datagram: the first 52 bytes of 28 packets, and nothing else.
//!
//! The paper leaves open what a node sends when it ends with fewer than 28. Here a datagram of
//! fewer headers is shorter. A packet of fewer than 52 bytes is filled up with zeros. Times,
//! lengths and sequence numbers are not in the format, so an analyzer can't count what was lost on
//! the way.

use std::fmt;

/// Bytes that the paper keeps of a packet.
pub const HEADER_BYTES: usize = 52;

/// Headers of a full datagram.
pub const HEADERS: usize = 28;

/// Bytes of a full datagram.
pub const DATAGRAM_BYTES: usize = HEADERS * HEADER_BYTES;

const _: () = assert!(DATAGRAM_BYTES == 1456);

/// Fills datagrams with headers.
#[derive(Clone, Debug, Default)]
pub struct DatagramBuilder {
    datagram: Vec<u8>,
}

impl DatagramBuilder {
    /// Adds a packet. Returns the datagram that it completes.
    pub fn push(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let taken = &packet[..packet.len().min(HEADER_BYTES)];
        let end = self.datagram.len() + HEADER_BYTES;
        self.datagram.extend_from_slice(taken);
        self.datagram.resize(end, 0);
        if end == DATAGRAM_BYTES {
            self.flush()
        } else {
            None
        }
    }

    /// The datagram that is not yet full, if it has a header.
    pub fn flush(&mut self) -> Option<Vec<u8>> {
        if self.datagram.is_empty() {
            return None;
        }
        let empty = Vec::with_capacity(DATAGRAM_BYTES);
        Some(std::mem::replace(&mut self.datagram, empty))
    }
}

/// Why a datagram is none of the paper's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatagramError {
    /// Bytes of the datagram.
    pub length: usize,
}

impl fmt::Display for DatagramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a datagram of {} bytes; DiCAP's has 1 to {HEADERS} headers of {HEADER_BYTES} bytes",
            self.length
        )
    }
}

impl std::error::Error for DatagramError {}

/// The headers of a datagram, in order.
///
/// # Errors
///
/// The datagram is empty, too long, or does not end with a header.
pub fn headers_of(datagram: &[u8]) -> Result<std::slice::ChunksExact<'_, u8>, DatagramError> {
    let length = datagram.len();
    if length == 0 || length > DATAGRAM_BYTES || length % HEADER_BYTES != 0 {
        return Err(DatagramError { length });
    }
    Ok(datagram.chunks_exact(HEADER_BYTES))
}
