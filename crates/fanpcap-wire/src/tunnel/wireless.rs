//! Frames from access points: CAPWAP's data (RFC 5415) and TZSP.

use crate::TZSP_FIELDS_MAX;

/// The Ethernet frame in a data message that is not a fragment, not encrypted, and not a
/// keep-alive. 802.11 frames are not read.
pub(super) fn in_capwap(bytes: &[u8]) -> Option<&[u8]> {
    let &[preamble, length, binding, flags] = bytes.first_chunk()?;
    // `preamble` has the version and the type, `binding` has flag T, `flags` has the flags F and K.
    let is_read = preamble == 0 && binding & 0x01 == 0 && flags & 0x88 == 0;
    is_read.then(|| bytes.get(usize::from(length >> 3) * 4..))?
}

/// The Ethernet frame in a message of version 1, after the message's fields. A field's first byte
/// is its kind. Kind 0 is padding and kind 1 is the end of the fields; a field of any other kind
/// has a length byte.
pub(super) fn in_tzsp(bytes: &[u8]) -> Option<&[u8]> {
    let (&[version, kind, high, low], mut rest) = bytes.split_first_chunk()?;
    if version != 1 || kind > 1 || [high, low] != [0, 1] {
        return None;
    }
    for _ in 0..TZSP_FIELDS_MAX {
        let len = match rest.first()? {
            1 => break,
            0 => 1,
            _ => 2 + usize::from(*rest.get(1)?),
        };
        rest = rest.get(len..)?;
    }
    rest.strip_prefix(&[1])
}
