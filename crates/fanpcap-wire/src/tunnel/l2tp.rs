//! L2TP: PPP in version 2 (RFC 2661), pseudowires in version 3 (RFC 3931) without a cookie.

use crate::shim::{Carried, in_ppp};

const CONTROL: u16 = 0x8000;
const LENGTH: u16 = 0x4000;
const SEQUENCE: u16 = 0x0800;
const OFFSET: u16 = 0x0200;
const VERSION: u16 = 0x000f;
/// PPP's address and control fields. A sender may leave them out.
const ALL_STATIONS: [u8; 2] = [0xff, 0x03];

/// The payload of a data message of version 2 or 3. `None` for a message of version 2 with an
/// offset field, which is not supported.
pub(super) fn over_udp(bytes: &[u8]) -> Option<Carried<'_>> {
    let flags = u16::from_be_bytes(*bytes.first_chunk()?);
    match flags & (CONTROL | OFFSET | VERSION) {
        2 => {
            let length = if flags & LENGTH == 0 { 0 } else { 2 };
            let sequence = if flags & SEQUENCE == 0 { 0 } else { 4 };
            in_session(bytes.get(6 + length + sequence..)?)
        }
        // Flags and the session, 4 bytes each.
        3 => Some(Carried::Untyped(bytes.get(8..)?)),
        _ => None,
    }
}

/// The payload of version 3 directly in IP. `None` for session 0, which carries control messages.
pub(super) fn over_ip(bytes: &[u8]) -> Option<&[u8]> {
    let (session, payload) = bytes.split_first_chunk::<4>()?;
    (*session != [0; 4]).then_some(payload)
}

fn in_session(bytes: &[u8]) -> Option<Carried<'_>> {
    let bytes = bytes.strip_prefix(&ALL_STATIONS).unwrap_or(bytes);
    let (protocol, payload) = bytes.split_first_chunk()?;
    // A protocol number below 256 may have only one byte. That byte is odd.
    match protocol[0] & 1 {
        0 => in_ppp(u16::from_be_bytes(*protocol), payload),
        _ => in_ppp(protocol[0].into(), bytes.get(1..)?),
    }
}
