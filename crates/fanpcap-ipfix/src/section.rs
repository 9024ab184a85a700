//! A packet as the beginning of its frame: PSAMP's packet report.

use std::time::Duration;

use crate::record::Packet;
use crate::template::{FIRST_ID, Field, Template, VARIABLE};

/// nfacctd and `GoFlow2` read `dataLinkFrameSection`. No collector that was tried reads
/// `ipHeaderPacketSection`.
pub(crate) const SECTION: Template = Template {
    id: FIRST_ID,
    scope: 0,
    fields: &[
        OBSERVATION_TIME_NANOSECONDS,
        SELECTION_SEQUENCE_ID,
        SELECTOR_ID,
        DIGEST_HASH_VALUE,
        DATA_LINK_FRAME_TYPE,
        DATA_LINK_FRAME_SIZE,
        DATA_LINK_FRAME_SECTION,
    ],
};

const OBSERVATION_TIME_NANOSECONDS: Field = (325, 8);
pub(crate) const SELECTION_SEQUENCE_ID: Field = (301, 8);
/// 64 bits that fewer bytes hold (RFC 7011, 6.2), as do those of the digest.
pub(crate) const SELECTOR_ID: Field = (302, 2);
const DIGEST_HASH_VALUE: Field = (326, 4);
const DATA_LINK_FRAME_TYPE: Field = (408, 2);
const DATA_LINK_FRAME_SIZE: Field = (312, 2);
const DATA_LINK_FRAME_SECTION: Field = (315, VARIABLE);

/// `dataLinkFrameType`.
const ETHERNET: u16 = 1;

/// How long the packet's record is, with at most `section_max` bytes of the frame.
pub(crate) fn len(packet: &Packet<'_>, section_max: usize) -> usize {
    let section = packet.frame.len().min(section_max);
    SECTION.fixed_len() + prefix_len(section) + section
}

/// The longest section that fits into a record of `room` bytes.
pub(crate) fn longest(room: usize) -> usize {
    room.saturating_sub(SECTION.fixed_len() + LONG_PREFIX)
}

/// Appends the packet's record.
pub(crate) fn encode(packet: &Packet<'_>, section_max: usize, bytes: &mut Vec<u8>) {
    bytes.extend(ntp(packet.time).to_be_bytes());
    bytes.extend(packet.revision.to_be_bytes());
    bytes.extend(packet.bucket.to_be_bytes());
    bytes.extend(packet.digest.to_be_bytes());
    bytes.extend(ETHERNET.to_be_bytes());
    let size = u16::try_from(packet.wire_len).unwrap_or(u16::MAX);
    bytes.extend(size.to_be_bytes());
    let section = &packet.frame[..packet.frame.len().min(section_max)];
    let len = u16::try_from(section.len()).unwrap_or(u16::MAX);
    let [high, low] = len.to_be_bytes();
    match prefix_len(section.len()) {
        LONG_PREFIX => bytes.extend([LONG, high, low]),
        _ => bytes.push(low),
    }
    bytes.extend(section);
}

/// Bytes that encode the length of a variable field: 1, or 3 for lengths from 255 on (RFC 7011, 7).
fn prefix_len(len: usize) -> usize {
    if len < usize::from(LONG) {
        1
    } else {
        LONG_PREFIX
    }
}

const LONG: u8 = 255;
const LONG_PREFIX: usize = 3;

/// NTP's format: seconds since 1900, which wrap in 2036, and 2^-32 of a second.
fn ntp(time: Duration) -> u64 {
    /// From 1900 to 1970.
    const TO_UNIX: u64 = 2_208_988_800;
    let seconds = time.as_secs().wrapping_add(TO_UNIX) << 32;
    // Rounded up, so that a collector that rounds down reads the same nanosecond.
    let fraction = (u64::from(time.subsec_nanos()) << 32).div_ceil(1_000_000_000);
    seconds | fraction
}
