//! DiCAP's datagram: the first 52 bytes of each of 28 packets, and nothing else.
//!
//! The paper does not say what a node with fewer than 28 headers sends when it stops. Here the node
//! sends a shorter datagram. A packet of fewer than 52 bytes is filled up with zeros. The format
//! has no times, lengths or sequence numbers, so an analyzer can't count lost packets.

/// How many bytes of each packet are in a datagram.
pub const HEADER_BYTES: usize = 52;

/// The number of packet headers in a full datagram.
pub const HEADERS: usize = 28;

/// The number of bytes in a full datagram.
pub const DATAGRAM_BYTES: usize = HEADERS * HEADER_BYTES;

const _: () = assert!(DATAGRAM_BYTES == 1456);

/// Fills datagrams with headers.
#[derive(Clone, Debug, Default)]
pub struct DatagramBuilder {
    datagram: Vec<u8>,
}

impl DatagramBuilder {
    /// Adds a packet. Returns the datagram, if the packet completes it.
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

/// The headers in a datagram, in order; `None` for no headers, too many bytes, or a cut header.
pub fn headers_of(datagram: &[u8]) -> Option<std::slice::ChunksExact<'_, u8>> {
    let length = datagram.len();
    let is_whole = (1..=DATAGRAM_BYTES).contains(&length) && length % HEADER_BYTES == 0;
    is_whole.then(|| datagram.chunks_exact(HEADER_BYTES))
}
