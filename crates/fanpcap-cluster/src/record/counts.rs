//! Counts in messages: a node's report for the buckets of one analyzer.
//!
//! A connection loses no message, and counts only grow. So a connection's first report has the
//! counts, and each later report has the difference between each count and the count in the report
//! before.
//!
//! After the head come fields of 8 bytes: since, stamp, revision, ring, the beacon's number, and
//! the beacon's time. Then come the analyzer's index (2), the number of analyzers (2), and 0 (4).
//! Then comes a varint for each bucket of this analyzer: its lowest bit is a flag, and the bits
//! above are the difference of the packets seen. If the flag is set, another varint follows: the
//! difference of the packets captured. Else this difference is 0. A varint has seven bits in each
//! byte, the low bits first; the highest bit is 0 in the last byte only.

use fanpcap_buckets::layout::BUCKETS;

use super::head::{HEAD_BYTES, Head, Kind, MessageError};
use super::head::{complete, read_u16, read_u64};
use crate::identity::Revision;
use crate::loss_account::{Beacon, Report, Summary};
use crate::part::Part;

const COUNTS_BYTES: usize = HEAD_BYTES + 56;

const VARINT_BYTES: usize = 10;

/// Mask of the 63 bits that are sent of a count of packets seen. The varint has its flag in the
/// other bit.
const SEEN: u64 = u64::MAX >> 1;

/// The counts of the last report, for each bucket: packets seen and captured.
type Before = Vec<[u64; 2]>;

/// Writes a node's reports for one connection to an analyzer.
#[derive(Debug)]
pub struct CountsEncoder {
    head: Head,
    part: Part,
    before: Before,
}

impl CountsEncoder {
    /// Writes reports about the buckets of `part`, for the cluster and the session in `head`.
    pub fn new(head: Head, part: Part) -> Self {
        let kind = Kind::Counts;
        Self {
            head: Head { kind, ..head },
            part,
            before: vec![[0; 2]; BUCKETS],
        }
    }

    /// Begins another connection: the next report is its first one, with the counts themselves.
    pub fn restart(&mut self) {
        self.before.fill([0; 2]);
    }

    /// Makes a message with the report. The message has only the lower 63 bits of each count of
    /// packets seen.
    pub fn encode(&mut self, report: &Report) -> Vec<u8> {
        let mut message = Vec::with_capacity(COUNTS_BYTES + 4 * BUCKETS);
        let summary = &report.summary;
        let head = Head {
            node: summary.node,
            boot: summary.boot,
            ..self.head
        };
        head.encode(&mut message);
        let numbers = [
            summary.since,
            summary.stamp,
            summary.revision.0,
            summary.ring,
            summary.beacon.sequence,
            summary.beacon.seen,
        ];
        message.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        let part = self.part.numbers();
        message.extend(part.iter().flat_map(|number| number.to_be_bytes()));
        message.extend_from_slice(&[0; 4]);
        for bucket in self.part.buckets() {
            let now = report.counts(bucket);
            let before = std::mem::replace(&mut self.before[bucket], now);
            let [seen, captured] = std::array::from_fn(|at| now[at].wrapping_sub(before[at]));
            let follows = captured != 0;
            put_varint(&mut message, (seen << 1) | u64::from(follows));
            if follows {
                put_varint(&mut message, captured);
            }
        }
        complete(&mut message);
        message
    }
}

/// Reads the reports of one connection.
#[derive(Debug, Default)]
pub struct CountsDecoder {
    part: Option<Part>,
    /// The counts of the last report; empty before the first one.
    before: Before,
}

impl CountsDecoder {
    /// Reads the connection's next report. Also returns which part of the buckets the report has.
    /// The counts of other buckets are 0.
    ///
    /// # Errors
    /// Fails if the message is not a report, or is about other buckets than the connection's
    /// previous report. After an error, no later report of the connection can be read.
    pub fn decode(&mut self, bytes: &[u8]) -> Result<(Part, Report), MessageError> {
        let head = Head::of_whole(bytes, Kind::Counts)?;
        let rest = bytes.get(COUNTS_BYTES..);
        let rest = rest.ok_or(MessageError::Length(bytes.len()))?;
        let part = Part::new(read_u16(bytes, 88), read_u16(bytes, 90));
        let part = part.ok_or(MessageError::Body)?;
        if *self.part.get_or_insert(part) != part {
            return Err(MessageError::Body);
        }
        self.add(part, rest).ok_or(MessageError::Body)?;
        let at = |word: usize| read_u64(bytes, HEAD_BYTES + word * 8);
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
        let counts = |which| Box::new(std::array::from_fn(|bucket| self.before[bucket][which]));
        let report = Report {
            summary,
            seen: counts(0),
            captured: counts(1),
        };
        Ok((part, report))
    }

    /// Adds the differences. `None` if there are too few or too many bytes for these buckets.
    fn add(&mut self, part: Part, mut rest: &[u8]) -> Option<()> {
        self.before.resize(BUCKETS, [0; 2]);
        for bucket in part.buckets() {
            let [seen, captured] = &mut self.before[bucket];
            let first = take_varint(&mut rest)?;
            *seen = (*seen + (first >> 1)) & SEEN;
            if first & 1 == 1 {
                *captured = captured.wrapping_add(take_varint(&mut rest)?);
            }
        }
        rest.is_empty().then_some(())
    }
}

fn put_varint(message: &mut Vec<u8>, mut count: u64) {
    while count >= 0x80 {
        message.push((count & 0x7f) as u8 | 0x80);
        count >>= 7;
    }
    message.push((count & 0x7f) as u8);
}

/// Takes a varint from the beginning of the bytes. `None` if it has no end, or more than 64 bits.
fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut count = 0;
    for at in 0..VARINT_BYTES {
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
