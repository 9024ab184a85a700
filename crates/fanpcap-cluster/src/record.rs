//! What nodes ship to analyzers: packets' first bytes, in the paper's datagrams or in our batches.

mod paper;
mod head;
mod batch;
mod counts;

pub use batch::{Batch, BatchBuilder, Origin, Records};
pub use counts::{decode_counts, encode_counts};
pub use head::{
    ACK_BYTES, HEAD_BYTES, Head, Kind, MESSAGE_BYTES, MessageError, decode_ack, encode_ack,
};
pub use paper::{
    DATAGRAM_BYTES, HEADERS, PAPER_HEADER_BYTES, PaperBuilder, PaperError, paper_headers,
};

/// A packet that a node captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// When the node took it, in nanoseconds since 1970.
    pub stamp: u64,
    /// Bytes on the wire.
    pub wire_length: u32,
    /// Its bucket, below 4096.
    pub bucket: u16,
    /// Captured in a union: another node may have captured this packet too.
    pub marked: bool,
    /// Its first bytes.
    pub captured: &'a [u8],
}
