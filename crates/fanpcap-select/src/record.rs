//! Records that the BPF program writes into the node's pool. The layout is that of all records in
//! pools ([`fanpcap_ring::pool::layout::record`]), with a content of their own in two fields.
//!
//! | bytes | |
//! | --- | --- |
//! | 18-19 | bit 0: 0; bits 1 to 12: bucket; bits 13 and 14: claim |
//! | 20-23 | the control word's mark |

use crate::{Claim, Control};
use fanpcap_ring::pool::layout::{SHORT, record};

pub(crate) const MARK: i16 = record::FILTER;

/// The maximum number of bytes of a frame that a record holds.
pub const MOST_BYTES: u16 = 256;

/// The bucket and the claim of a record, decoded from its flags.
pub fn flags_of(flags: u16) -> Option<(u16, Claim)> {
    let claim = match flags >> 13 {
        1 => Claim::Mine,
        2 => Claim::Shared,
        _ => return None,
    };
    Some(((flags >> 1) & 0x0fff, claim))
}

const _: () = assert!(MOST_BYTES as u32 <= SHORT);
const _: () = assert!(Control::MARK_SHIFT == 32);
