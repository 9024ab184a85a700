//! Counts on the wire: a chunk of what a node counted.
//!
//! After the head, each 8 bytes: since, stamp, revision, ring, marked, beacon's number, beacon's
//! time; then the first bucket (2), the number of buckets (2), 0 (4), and for each bucket the
//! packets seen (8) and captured (8).

use fanpcap_buckets::layout::BUCKETS;

use super::head::{HEAD_BYTES, Head, Kind, MESSAGE_BYTES, MessageError};
use super::head::{complete, read_u16, read_u64};
use crate::identity::Revision;
use crate::witness::{Beacon, Chunk, Summary};

const COUNTS_BYTES: usize = HEAD_BYTES + 64;
const PAIR_BYTES: usize = 16;

/// A message with a chunk. What does not fit into a message is left out: a chunk of 4000 buckets
/// fits.
pub fn encode_counts(head: &Head, chunk: &Chunk) -> Vec<u8> {
    let most = (MESSAGE_BYTES - COUNTS_BYTES) / PAIR_BYTES;
    let counts = &chunk.counts[..chunk.counts.len().min(most)];
    let mut message = Vec::with_capacity(COUNTS_BYTES + counts.len() * PAIR_BYTES);
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
        summary.marked,
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
    for (seen, captured) in counts {
        message.extend_from_slice(&seen.to_be_bytes());
        message.extend_from_slice(&captured.to_be_bytes());
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
    let pairs = bytes.get(COUNTS_BYTES..);
    let pairs = pairs.ok_or(MessageError::Length(bytes.len()))?;
    let at = |word: usize| read_u64(bytes, HEAD_BYTES + word * 8);
    let (first, buckets) = (read_u16(bytes, 96), usize::from(read_u16(bytes, 98)));
    if pairs.len() != buckets * PAIR_BYTES || usize::from(first) + buckets > BUCKETS {
        return Err(MessageError::Body);
    }
    let summary = Summary {
        node: head.node,
        boot: head.boot,
        since: at(0),
        stamp: at(1),
        revision: Revision(at(2)),
        ring: at(3),
        marked: at(4),
        beacon: Beacon {
            sequence: at(5),
            seen: at(6),
        },
    };
    let pairs = pairs.chunks_exact(PAIR_BYTES);
    let counts = pairs
        .map(|pair| (read_u64(pair, 0), read_u64(pair, 8)))
        .collect();
    let chunk = Chunk {
        summary,
        first,
        counts,
    };
    Ok((head, chunk))
}
