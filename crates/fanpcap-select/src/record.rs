//! Records that the BPF program writes into ring buffers: the layout of the XDP engine's, with
//! other content in two fields.
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

/// Bytes of a record before the frame's.
pub const HEAD: usize = 24;

/// Bytes of a frame that are kept unless something else is asked for: 52 behind Ethernet and two
/// tags, as DiCAP sends them, in whole words.
pub const DEFAULT_BYTES: u16 = 80;

/// The most bytes of a frame that are kept.
pub const MOST_BYTES: u16 = 256;

/// What a record says of its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// When the packet came, in nanoseconds of `CLOCK_MONOTONIC`.
    pub stamp_ns: u64,
    /// Bytes on the wire.
    pub len: u32,
    /// The receive queue.
    pub queue: u16,
    /// The packet's bucket.
    pub bucket: u16,
    /// [`Claim::Mine`] or [`Claim::Shared`].
    pub claim: Claim,
    /// [`Control::mark`] of the table that counted.
    pub mark: u32,
}

/// Reads a record; `None` if the BPF program has not written it. Returns the frame's bytes too.
pub fn read(record: &[u8]) -> Option<(Head, &[u8])> {
    let (stamp, rest) = record.split_first_chunk()?;
    let (captured, rest) = rest.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let (queue, rest) = rest.split_first_chunk()?;
    let (flags, rest) = rest.split_first_chunk()?;
    let (mark, rest) = rest.split_first_chunk()?;
    let captured = usize::try_from(u32::from_ne_bytes(*captured)).ok()?;
    let (bucket, claim) = flags_of(u16::from_ne_bytes(*flags))?;
    let head = Head {
        stamp_ns: u64::from_ne_bytes(*stamp),
        len: u32::from_ne_bytes(*len),
        queue: u16::from_ne_bytes(*queue),
        bucket,
        claim,
        mark: u32::from_ne_bytes(*mark),
    };
    Some((head, rest.get(..captured)?))
}

/// Bucket and claim of a record, from its flags.
pub fn flags_of(flags: u16) -> Option<(u16, Claim)> {
    let claim = match flags >> 13 {
        1 => Claim::Mine,
        2 => Claim::Shared,
        _ => return None,
    };
    Some(((flags >> 1) & 0x0fff, claim))
}

const _: () = assert!(HEAD == DATA.unsigned_abs() as usize && DEFAULT_BYTES % 8 == 0);
const _: () = assert!(Control::MARK_SHIFT == 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_whose_its_packet_is() {
        let flags = (4095_u16 << 1) | (2 << 13);
        let record = [
            &7_u64.to_ne_bytes()[..],
            &3_u32.to_ne_bytes(),
            &1500_u32.to_ne_bytes(),
            &5_u16.to_ne_bytes(),
            &flags.to_ne_bytes(),
            &9_u32.to_ne_bytes(),
            &[1, 2, 3, 0xee],
        ]
        .concat();
        let (head, bytes) = read(&record).unwrap();
        assert_eq!(bytes, [1, 2, 3]);
        let expected = Head {
            stamp_ns: 7,
            len: 1500,
            queue: 5,
            bucket: 4095,
            claim: Claim::Shared,
            mark: 9,
        };
        assert_eq!(head, expected);
        assert_eq!(read(&record[..HEAD + 2]), None);
        assert_eq!(flags_of(0), None);
    }
}
