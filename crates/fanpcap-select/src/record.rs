//! Records that the BPF program writes into ring buffers. Their layout is that of the XDP engine's
//! records, with different content in two fields.
//!
//! | bytes | |
//! | --- | --- |
//! | 0-7 | when the packet came, nanoseconds of `CLOCK_MONOTONIC` |
//! | 8-11 | bytes captured |
//! | 12-15 | bytes on the wire |
//! | 16-17 | receive queue |
//! | 18-19 | bit 0: 0; bits 1 to 12: bucket; bits 13 and 14: claim |
//! | 20-23 | the control word's mark |
//! | 24- | the frame's first bytes |

use crate::{Claim, Control};

pub(crate) const STAMP: i16 = 0;
pub(crate) const CAPLEN: i16 = 8;
pub(crate) const LEN: i16 = 12;
pub(crate) const QUEUE: i16 = 16;
pub(crate) const FLAGS: i16 = 18;
pub(crate) const MARK: i16 = 20;
pub(crate) const DATA: i16 = 24;

/// The length of a record's head in bytes. The frame's bytes follow.
pub const HEAD: usize = 24;

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

const _: () = assert!(HEAD == DATA.unsigned_abs() as usize);
const _: () = assert!(Control::MARK_SHIFT == 32);
