//! pcapng blocks (draft-ietf-opsawg-pcapng), each whole in one buffer.

use fanpcap_cluster::NodeId;
use fanpcap_cluster::analyzer::Delivered;
use fanpcap_cluster::record::Record;

pub(super) const SECTION: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE: u32 = 1;
pub(super) const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;

/// Options: an interface's name, and the resolution of its stamps.
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;

/// The section header that a file begins with.
pub(super) fn section(to: &mut Vec<u8>) {
    block(to, SECTION, |to| {
        to.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        to.extend_from_slice(&1u16.to_le_bytes());
        to.extend_from_slice(&0u16.to_le_bytes());
        to.extend_from_slice(&u64::MAX.to_le_bytes());
    });
}

/// The name of a node's interface.
pub(super) fn interface_name(node: NodeId) -> String {
    format!("node {node}")
}

/// Bytes that a packet had on the wire, as far as the file says it: not fewer than were captured.
pub(super) fn wire_length(record: &Record<'_>) -> u32 {
    let captured = u32::try_from(record.captured.len()).unwrap_or(u32::MAX);
    record.wire_length.max(captured)
}

/// An interface whose stamps are in nanoseconds.
pub(super) fn interface(to: &mut Vec<u8>, link: u16, name: &str) {
    block(to, INTERFACE, |to| {
        to.extend_from_slice(&u32::from(link).to_le_bytes());
        to.extend_from_slice(&0u32.to_le_bytes());
        option(to, IF_NAME, name.as_bytes());
        option(to, IF_TSRESOL, &[9]);
        to.extend_from_slice(&[0; 4]);
    });
}

/// A packet of that interface.
pub(super) fn packet(to: &mut Vec<u8>, interface: u32, packet: &Delivered<'_>) {
    let record = &packet.record;
    let length = u32::try_from(record.captured.len()).unwrap_or(u32::MAX);
    block(to, PACKET, |to| {
        to.extend_from_slice(&interface.to_le_bytes());
        // The upper word comes first, in either byte order.
        to.extend_from_slice(&record.stamp.rotate_left(32).to_le_bytes());
        to.extend_from_slice(&length.to_le_bytes());
        to.extend_from_slice(&wire_length(record).to_le_bytes());
        to.extend_from_slice(record.captured);
        pad(to, record.captured.len());
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

/// A block: its type, its length, its body, its length.
fn block(to: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = to.len();
    to.extend_from_slice(&kind.to_le_bytes());
    to.extend_from_slice(&[0; 4]);
    body(to);
    let length = u32::try_from(to.len() + 4 - begin).unwrap_or(u32::MAX);
    to.extend_from_slice(&length.to_le_bytes());
    to[begin + 4..begin + 8].copy_from_slice(&length.to_le_bytes());
}
