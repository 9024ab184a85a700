//! A batch: packets that one node captured by one topology, in the order of capture.
//!
//! After the head:
//!
//! | Offset | Bytes | What |
//! | --- | --- | --- |
//! | 40 | 8 | revision of the topology by which the node captured the packets |
//! | 48 | 8 | number of the batch in the session |
//! | 56 | 8 | number of the batch's first record in the session |
//! | 64 | 8 | stamp: nanoseconds since 1970 of the first record |
//! | 72 | 2 | number of records |
//! | 74 | 2 | link type |
//! | 76 | 4 | 0 |
//!
//! A record is 12 bytes, and then the packet's first bytes. The 12 bytes are: nanoseconds since the
//! batch's stamp (signed, 4), bytes on the wire (4), bytes captured (2), and the bucket (2), whose
//! highest bit is set for a packet captured in a union.

use super::Record;
use super::head::{HEAD_BYTES, Head, Kind, MESSAGE_BYTES, MessageError};
use super::head::{complete, read_u16, read_u32, read_u64};
use crate::identity::Revision;

const BATCH_BYTES: usize = HEAD_BYTES + 40;
const RECORD_BYTES: usize = 12;
const SEQUENCE_AT: usize = 48;
const COUNT_AT: usize = 72;
const MARK: u16 = 0x8000;
const BUCKET: u16 = 0x0fff;

/// The topology, the sequence numbers and the link type of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The topology by which the node captured.
    pub revision: Revision,
    /// The number of the batch in its session.
    pub sequence: u64,
    /// How many records the session had before this batch.
    pub first: u64,
    /// The link type of the packets (`LINKTYPE_`).
    pub link: u16,
}

/// A batch whose bytes were checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch<'a> {
    /// The head: node, boot and session.
    pub head: Head,
    /// The batch's topology and numbers.
    pub origin: Origin,
    count: u16,
    stamp: u64,
    body: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Reads a message that is a batch.
    ///
    /// # Errors
    /// Fails if the message is not a batch, has a bucket above 4095, or ends within a record.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, MessageError> {
        let head = Head::of_whole(bytes, Kind::Records)?;
        let body = bytes.get(BATCH_BYTES..);
        let body = body.ok_or(MessageError::Length(bytes.len()))?;
        let batch = Self {
            head,
            origin: Origin {
                revision: Revision(read_u64(bytes, 40)),
                sequence: read_u64(bytes, 48),
                first: read_u64(bytes, 56),
                link: read_u16(bytes, 74),
            },
            count: read_u16(bytes, COUNT_AT),
            stamp: read_u64(bytes, 64),
            body,
        };
        batch.check()?;
        Ok(batch)
    }

    fn check(&self) -> Result<(), MessageError> {
        let mut rest = self.body;
        for _ in 0..self.count {
            let Some((record, behind)) = rest.split_first_chunk::<RECORD_BYTES>() else {
                return Err(MessageError::Body);
            };
            let captured = usize::from(read_u16(record, 8));
            if read_u16(record, 10) & !(MARK | BUCKET) != 0 || captured > behind.len() {
                return Err(MessageError::Body);
            }
            rest = &behind[captured..];
        }
        let counted = self.origin.first.checked_add(u64::from(self.count));
        let numbered = self.origin.sequence < u64::MAX && counted.is_some();
        if rest.is_empty() && numbered {
            Ok(())
        } else {
            Err(MessageError::Body)
        }
    }

    /// The number of records.
    pub fn len(&self) -> u16 {
        self.count
    }

    /// Whether the batch has no record. A node that has no packets to send sends empty batches.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The time stamp of the first record. For an empty batch, the time when the batch was made.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// The records, in the order in which the node captured them.
    pub fn records(&self) -> Records<'a> {
        Records {
            stamp: self.stamp,
            rest: self.body,
        }
    }
}

/// The records of a batch.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    stamp: u64,
    rest: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let (record, behind) = self.rest.split_first_chunk::<RECORD_BYTES>()?;
        let (captured, rest) = behind.split_at_checked(usize::from(read_u16(record, 8)))?;
        self.rest = rest;
        let place = read_u16(record, 10);
        let since = i32::from_be_bytes([record[0], record[1], record[2], record[3]]);
        Some(Record {
            stamp: self.stamp.saturating_add_signed(i64::from(since)),
            wire_length: read_u32(record, 4),
            bucket: place & BUCKET,
            marked: place & MARK != 0,
            captured,
        })
    }
}

/// Makes the batches of a session.
#[derive(Clone, Debug)]
pub struct BatchBuilder {
    head: Head,
    size: usize,
    origin: Origin,
    count: u16,
    stamp: u64,
    bytes: Vec<u8>,
}

impl BatchBuilder {
    /// Begins a session. A batch has up to `size` bytes, and never more than a message may have.
    pub fn new(head: Head, size: usize, link: u16) -> Self {
        let least = BATCH_BYTES + RECORD_BYTES + 64;
        Self {
            head: Head {
                kind: Kind::Records,
                ..head
            },
            size: size.clamp(least, MESSAGE_BYTES),
            origin: Origin {
                revision: Revision(0),
                sequence: 0,
                first: 0,
                link,
            },
            count: 0,
            stamp: 0,
            bytes: Vec::new(),
        }
    }

    /// The number of the next batch.
    pub fn sequence(&self) -> u64 {
        self.origin.sequence
    }

    /// Gives the newest batch's number to the next batch. The caller does not send the newest
    /// batch, and analyzers would wait for a batch whose number is missing. The records of the
    /// unsent batch count as lost, because record numbers are not reused.
    pub fn take_back(&mut self) {
        self.origin.sequence = self.origin.sequence.saturating_sub(1);
    }

    /// The number of records in all batches that have ended, without the records that still wait.
    pub fn first(&self) -> u64 {
        self.origin.first
    }

    /// Adds a record captured by the topology of `revision`. A packet that does not fit into an
    /// empty batch is shortened. If the record begins a new batch, returns the previous batch.
    pub fn push(&mut self, revision: Revision, record: &Record<'_>) -> Option<Vec<u8>> {
        let most = self.size - BATCH_BYTES - RECORD_BYTES;
        let captured = &record.captured[..record.captured.len().min(most)];
        let needed = self.bytes.len() + RECORD_BYTES + captured.len();
        let since = i32::try_from(record.stamp.wrapping_sub(self.stamp) as i64);
        let goes_on = self.count > 0
            && self.count < u16::MAX
            && needed <= self.size
            && revision == self.origin.revision;
        let (full, since) = match since {
            Ok(since) if goes_on => (None, since),
            _ => {
                let full = self.flush();
                self.begin(revision, record.stamp);
                (full, 0)
            }
        };
        self.append(since, record, captured);
        full
    }

    fn append(&mut self, since: i32, record: &Record<'_>, captured: &[u8]) {
        let length = u16::try_from(captured.len()).unwrap_or(u16::MAX);
        let mark = if record.marked { MARK } else { 0 };
        let mut head = [0; RECORD_BYTES];
        head[..4].copy_from_slice(&since.to_be_bytes());
        head[4..8].copy_from_slice(&record.wire_length.to_be_bytes());
        head[8..10].copy_from_slice(&length.to_be_bytes());
        head[10..].copy_from_slice(&((record.bucket & BUCKET) | mark).to_be_bytes());
        self.bytes.extend_from_slice(&head);
        self.bytes.extend_from_slice(captured);
        self.count += 1;
    }

    /// Ends the batch whose records wait, and returns it; `None` if no record waits.
    pub fn flush(&mut self) -> Option<Vec<u8>> {
        (self.count > 0).then(|| self.finish())
    }

    /// Returns a batch without records, which shows that the node had no packets to send until
    /// `now`; `None` if records wait.
    pub fn idle(&mut self, revision: Revision, now: u64) -> Option<Vec<u8>> {
        if self.count > 0 {
            return None;
        }
        self.begin(revision, now);
        Some(self.finish())
    }

    fn begin(&mut self, revision: Revision, stamp: u64) {
        self.origin.revision = revision;
        self.stamp = stamp;
        self.bytes.reserve(self.size);
        self.head.encode(&mut self.bytes);
        // The batch gets its number when it ends: see `take_back`.
        let numbers = [revision.0, 0, self.origin.first, stamp];
        for number in numbers {
            self.bytes.extend_from_slice(&number.to_be_bytes());
        }
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes
            .extend_from_slice(&self.origin.link.to_be_bytes());
        self.bytes.extend_from_slice(&[0; 4]);
    }

    fn finish(&mut self) -> Vec<u8> {
        let mut batch = std::mem::take(&mut self.bytes);
        batch[SEQUENCE_AT..SEQUENCE_AT + 8].copy_from_slice(&self.origin.sequence.to_be_bytes());
        batch[COUNT_AT..COUNT_AT + 2].copy_from_slice(&self.count.to_be_bytes());
        complete(&mut batch);
        self.origin.sequence += 1;
        self.origin.first += u64::from(self.count);
        self.count = 0;
        batch
    }
}
