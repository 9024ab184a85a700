//! Counts on the wire: a chunk of what a node counted.
//!
//! After the head, each 8 bytes: since, stamp, revision, ring, beacon's number, beacon's time; then
//! the first bucket (2), the number of buckets (2), 0 (4), and for each bucket the packets seen,
//! captured and shared. These are varints: seven bits a byte, the low ones first, and the highest
//! bit in all bytes but the last.

use fanpcap_buckets::layout::BUCKETS;

use super::head::{HEAD_BYTES, Head, Kind, MESSAGE_BYTES, MessageError};
use super::head::{complete, read_u16, read_u64};
use crate::identity::Revision;
use crate::witness::{Beacon, Chunk, Summary};

const COUNTS_BYTES: usize = HEAD_BYTES + 56;

/// Most bytes of a count.
const COUNT_BYTES: usize = 10;

/// A message with a chunk. What does not fit into a message is left out: a chunk of 2000 buckets
/// fits.
pub fn encode_counts(head: &Head, chunk: &Chunk) -> Vec<u8> {
    let most = (MESSAGE_BYTES - COUNTS_BYTES) / (3 * COUNT_BYTES);
    let counts = &chunk.counts[..chunk.counts.len().min(most)];
    let mut message = Vec::with_capacity(COUNTS_BYTES + counts.len() * 3 * COUNT_BYTES);
    let summary = &chunk.summary;
    let whole = Head {
        kind: Kind::Counts,
        node: summary.node,
        boot: summary.boot,
        ..*head
    };
    whole.encode(&mut message);
    let numbers = [
        summary.since,
        summary.stamp,
        summary.revision.0,
        summary.ring,
        summary.beacon.sequence,
        summary.beacon.seen,
    ];
    for number in numbers {
        message.extend_from_slice(&number.to_be_bytes());
    }
    let buckets = u16::try_from(counts.len()).unwrap_or(u16::MAX);
    message.extend_from_slice(&chunk.first.to_be_bytes());
    message.extend_from_slice(&buckets.to_be_bytes());
    message.extend_from_slice(&[0; 4]);
    for count in counts.iter().flatten() {
        put_varint(&mut message, *count);
    }
    complete(&mut message);
    message
}

/// Reads a message with a chunk.
///
/// # Errors
///
/// It has no counts, or its buckets are not those of a cluster.
pub fn decode_counts(bytes: &[u8]) -> Result<(Head, Chunk), MessageError> {
    let head = Head::of_whole(bytes, Kind::Counts)?;
    let mut rest = bytes
        .get(COUNTS_BYTES..)
        .ok_or(MessageError::Length(bytes.len()))?;
    let at = |word: usize| read_u64(bytes, HEAD_BYTES + word * 8);
    let (first, buckets) = (read_u16(bytes, 88), usize::from(read_u16(bytes, 90)));
    if usize::from(first) + buckets > BUCKETS {
        return Err(MessageError::Body);
    }
    let summary = Summary {
        node: head.node,
        boot: head.boot,
        since: at(0),
        stamp: at(1),
        revision: Revision(at(2)),
        ring: at(3),
        beacon: Beacon {
            sequence: at(4),
            seen: at(5),
        },
    };
    let mut counts = vec![[0; 3]; buckets];
    for count in counts.iter_mut().flatten() {
        *count = take_varint(&mut rest).ok_or(MessageError::Body)?;
    }
    if !rest.is_empty() {
        return Err(MessageError::Body);
    }
    let chunk = Chunk {
        summary,
        first,
        counts,
    };
    Ok((head, chunk))
}

fn put_varint(message: &mut Vec<u8>, mut count: u64) {
    while count >= 0x80 {
        message.push((count & 0x7f) as u8 | 0x80);
        count >>= 7;
    }
    message.push((count & 0x7f) as u8);
}

/// Takes a varint off the bytes; `None` if it does not end there, or is beyond 64 bits.
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut count = 0;
    for at in 0..COUNT_BYTES {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let low = u64::from(byte & 0x7f);
        let shifted = low << (7 * at);
        if shifted >> (7 * at) != low {
            return None;
        }
        count |= shifted;
        if byte & 0x80 == 0 {
            return Some(count);
        }
    }
    None
}
