//! Exports a packet as the beginning of its frame: PSAMP's packet report.

use std::time::Duration;

use crate::message::RECORD_MAX;
use crate::record::Packet;
use crate::template::{FIRST_ID, Field, Template, VARIABLE};

/// The template of a packet's record. nfacctd and `GoFlow2` read `dataLinkFrameSection`. No tested
/// collector reads `ipHeaderPacketSection`.
pub(crate) const SECTION: Template = Template {
    id: FIRST_ID,
    scope: 0,
    fields: &[
        (325, 8), // observationTimeNanoseconds
        SELECTION_SEQUENCE_ID,
        SELECTOR_ID,
        (326, 4),        // digestHashValue
        (408, 2),        // dataLinkFrameType
        (312, 2),        // dataLinkFrameSize
        (315, VARIABLE), // dataLinkFrameSection
    ],
};

pub(crate) const SELECTION_SEQUENCE_ID: Field = (301, 8);
/// `selectorId` has 64 bits. Like the digest, it is sent in fewer bytes (RFC 7011, 6.2).
pub(crate) const SELECTOR_ID: Field = (302, 2);

/// The value of `dataLinkFrameType` for Ethernet.
const ETHERNET: u16 = 1;

/// The beginning of a frame, as far as it fits into a record.
pub(crate) fn of(frame: &[u8]) -> &[u8] {
    let max = RECORD_MAX - SECTION.fixed_len() - LONG_PREFIX;
    &frame[..frame.len().min(max)]
}

/// The length of a record in bytes; `section` is the part of the frame that the record has.
pub(crate) fn len(section: &[u8]) -> usize {
    SECTION.fixed_len() + prefix_len(section.len()) + section.len()
}

pub(crate) fn encode(packet: &Packet<'_>, section: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend(ntp(packet.time).to_be_bytes());
    bytes.extend(packet.revision.to_be_bytes());
    bytes.extend(packet.bucket.to_be_bytes());
    bytes.extend(packet.digest.to_be_bytes());
    bytes.extend(ETHERNET.to_be_bytes());
    let size = u16::try_from(packet.wire_len).unwrap_or(u16::MAX);
    bytes.extend(size.to_be_bytes());
    let len = u16::try_from(section.len()).unwrap_or(u16::MAX);
    let [high, low] = len.to_be_bytes();
    match prefix_len(section.len()) {
        LONG_PREFIX => bytes.extend([LONG, high, low]),
        _ => bytes.push(low),
    }
    bytes.extend(section);
}

/// How many bytes encode a variable field's length: 1, or 3 from 255 on (RFC 7011, 7).
fn prefix_len(len: usize) -> usize {
    if len < usize::from(LONG) {
        1
    } else {
        LONG_PREFIX
    }
}

const LONG: u8 = 255;
const LONG_PREFIX: usize = 3;

/// Converts a time to NTP's format: seconds since 1900, which wrap in 2036, and units of 2^-32 s.
fn ntp(time: Duration) -> u64 {
    /// The seconds from 1900 to 1970.
    const TO_UNIX: u64 = 2_208_988_800;
    let seconds = time.as_secs().wrapping_add(TO_UNIX) << 32;
    // Rounded up, so that a collector that rounds down reads the same nanosecond.
    let fraction = (u64::from(time.subsec_nanos()) << 32).div_ceil(1_000_000_000);
    seconds | fraction
}
