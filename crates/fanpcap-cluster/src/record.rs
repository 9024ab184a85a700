//! What nodes ship to analyzers: batches of packets' first bytes, and counts.

mod head;
mod batch;
mod counts;

pub use batch::{Batch, BatchBuilder, Origin, Records};
pub use counts::{CountsDecoder, CountsEncoder};
pub use head::{
    ACK_BYTES, HEAD_BYTES, Head, Kind, MESSAGE_BYTES, MessageError, decode_ack, encode_ack,
};

/// A packet that a node captured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// When the node captured the packet, in nanoseconds since 1970.
    pub stamp: u64,
    /// Bytes on the wire.
    pub wire_length: u32,
    /// The packet's bucket, below 4096.
    pub bucket: u16,
    /// Whether the packet was captured in a union, so that another node may have captured it too.
    pub marked: bool,
    /// The packet's first bytes.
    pub captured: &'a [u8],
}
