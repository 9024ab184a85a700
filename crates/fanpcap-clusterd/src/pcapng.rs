//! pcapng blocks (draft-ietf-opsawg-pcapng), each complete in one buffer.

use fanpcap_cluster::analyzer::Delivered;
use fanpcap_cluster::record::Record;
use fanpcap_cluster::{NodeId, Revision};

#[cfg(feature = "parquet")]
use crate::conf::node;

pub(crate) const SECTION: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE: u32 = 1;
pub(crate) const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// Options of an interface: its name, its description, the resolution of its time stamps.
const IF_NAME: u16 = 2;
const IF_DESCRIPTION: u16 = 3;
const IF_TSRESOL: u16 = 9;

/// An option of a packet: the queue of the interface at which the packet arrived.
const EPB_QUEUE: u16 = 6;

/// The beginning of the description of a node's interface. The topology's revision follows.
const TOPOLOGY: &str = "topology ";
const NODE: &str = "node ";

/// The section header at the beginning of a file.
pub(crate) fn section(to: &mut Vec<u8>) {
    block(to, SECTION, |to| {
        to.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        to.extend_from_slice(&1u16.to_le_bytes());
        to.extend_from_slice(&0u16.to_le_bytes());
        to.extend_from_slice(&u64::MAX.to_le_bytes());
    });
}

/// The wire length that a packet gets in a file: never less than the number of captured bytes.
pub(crate) fn wire_length(record: &Record<'_>) -> u32 {
    let captured = u32::try_from(record.captured.len()).unwrap_or(u32::MAX);
    record.wire_length.max(captured)
}

/// An interface block: the packets that a node captured by the topology of this revision. Its time
/// stamps are in nanoseconds.
pub(crate) fn interface(to: &mut Vec<u8>, link: u16, (node, revision): (NodeId, Revision)) {
    block(to, INTERFACE, |to| {
        to.extend_from_slice(&u32::from(link).to_le_bytes());
        to.extend_from_slice(&0u32.to_le_bytes());
        option(to, IF_NAME, format!("{NODE}{node}").as_bytes());
        option(
            to,
            IF_DESCRIPTION,
            format!("{TOPOLOGY}{revision}").as_bytes(),
        );
        option(to, IF_TSRESOL, &[9]);
        to.extend_from_slice(&[0; 4]);
    });
}

/// Reads the node and the revision from an interface's name and description.
#[cfg(feature = "parquet")]
pub(crate) fn origin(name: &str, description: &str) -> Option<(NodeId, Revision)> {
    let node = node(name.strip_prefix(NODE)?).ok()?;
    let revision = description.strip_prefix(TOPOLOGY)?.parse().ok()?;
    Some((node, Revision(revision)))
}

/// A packet block of a node's interface. The option `epb_queue` has the packet's bucket.
pub(crate) fn packet(to: &mut Vec<u8>, interface: u32, packet: &Delivered<'_>) {
    let record = &packet.record;
    let length = u32::try_from(record.captured.len()).unwrap_or(u32::MAX);
    block(to, PACKET, |to| {
        to.extend_from_slice(&interface.to_le_bytes());
        // In pcapng, the upper 32 bits come before the lower 32 bits, whatever the byte order.
        to.extend_from_slice(&record.stamp.rotate_left(32).to_le_bytes());
        to.extend_from_slice(&length.to_le_bytes());
        to.extend_from_slice(&wire_length(record).to_le_bytes());
        to.extend_from_slice(record.captured);
        pad(to, record.captured.len());
        option(to, EPB_QUEUE, &u32::from(record.bucket).to_le_bytes());
        to.extend_from_slice(&[0; 4]);
    });
}

fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    to.extend_from_slice(&code.to_le_bytes());
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(value);
    pad(to, value.len());
}

fn pad(to: &mut Vec<u8>, length: usize) {
    to.resize(to.len() + length.next_multiple_of(4) - length, 0);
}

/// A block: its type, its length, its body, and its length again.
fn block(to: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = to.len();
    to.extend_from_slice(&kind.to_le_bytes());
    to.extend_from_slice(&[0; 4]);
    body(to);
    let length = u32::try_from(to.len() + 4 - begin).unwrap_or(u32::MAX);
    to.extend_from_slice(&length.to_le_bytes());
    to[begin + 4..begin + 8].copy_from_slice(&length.to_le_bytes());
}
