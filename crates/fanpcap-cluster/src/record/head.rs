//! The head of all messages between nodes and analyzers, and the acknowledgement.
//!
//! A message is a part of a TCP stream. All numbers are in network byte order. Nodes of different
//! versions of fanpcap may be in one cluster. So a receiver ignores the bytes that are 0 in this
//! table, and a later version may use these bytes for optional fields. Any other change needs
//! another version number, which receivers of this version refuse.
//!
//! | Offset | Bytes | What |
//! | --- | --- | --- |
//! | 0 | 4 | `FNPR` |
//! | 4 | 1 | version, 1 |
//! | 5 | 1 | kind |
//! | 6 | 2 | 0 |
//! | 8 | 4 | bytes of the whole message |
//! | 12 | 4 | node |
//! | 16 | 8 | cluster |
//! | 24 | 8 | boot: random number, made when the node's machine booted |
//! | 32 | 8 | session: random number, made when the sender began to count batches |

use std::fmt;

use crate::identity::NodeId;

/// The number of bytes in the head.
pub const HEAD_BYTES: usize = 40;

/// The maximum number of bytes in a message. A message has room for a report of all buckets,
/// whatever its counts are.
pub const MESSAGE_BYTES: usize = 1 << 17;

/// The number of bytes in an acknowledgement.
pub const ACK_BYTES: usize = HEAD_BYTES + 8;

const MAGIC: [u8; 4] = *b"FNPR";
const VERSION: u8 = 1;

/// What a message contains after its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Packets.
    Records = 1,
    /// What a node has counted.
    Counts = 2,
    /// An analyzer's answer: which batches it has.
    Ack = 3,
}

/// The fields with which all messages begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// What the message contains.
    pub kind: Kind,
    /// Bytes of the whole message.
    pub length: usize,
    /// The cluster's id.
    pub cluster: u64,
    /// The node that sends the message, or whose batches are acknowledged.
    pub node: NodeId,
    /// A random number, made when the node's machine booted.
    pub boot: u64,
    /// A random number, made when the sender began to count batches.
    pub session: u64,
}

/// Why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// The bytes do not begin with the four bytes of a message.
    Magic,
    /// The message has this version, which this build can't read.
    Version(u8),
    /// The message is of this kind, which this build does not know or does not expect here.
    Kind(u8),
    /// The length of the message is too small, too great, or differs from the number of bytes.
    Length(usize),
    /// A count does not fit the message's length, or a bucket or a number is out of range.
    Body,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Magic => write!(f, "not a message of a fanpcap node"),
            Self::Version(version) => {
                write!(
                    f,
                    "version {version} of the records; this build reads {VERSION}"
                )
            }
            Self::Kind(kind) => write!(f, "a message of kind {kind}, which is not read here"),
            Self::Length(length) => write!(
                f,
                "a message of {length} bytes; the length must be {HEAD_BYTES} to {MESSAGE_BYTES} bytes, and the message's head must give it"
            ),
            Self::Body => write!(f, "a message whose counts and bytes disagree"),
        }
    }
}

impl std::error::Error for MessageError {}

impl Head {
    /// Reads a head. The rest of the message may follow, or may not have come yet. The whole
    /// message has [`length`](Self::length) bytes.
    ///
    /// # Errors
    /// Fails if neither the message nor later messages of the same TCP connection can be read.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            return Err(MessageError::Length(bytes.len()));
        };
        if head[..4] != MAGIC {
            return Err(MessageError::Magic);
        }
        if head[4] != VERSION {
            return Err(MessageError::Version(head[4]));
        }
        let mut kinds = [Kind::Records, Kind::Counts, Kind::Ack].into_iter();
        let kind = kinds.find(|kind| *kind as u8 == head[5]);
        let kind = kind.ok_or(MessageError::Kind(head[5]))?;
        let length = read_u32(head, 8) as usize;
        if !(HEAD_BYTES..=MESSAGE_BYTES).contains(&length) {
            return Err(MessageError::Length(length));
        }
        Ok(Self {
            kind,
            length,
            cluster: read_u64(head, 16),
            node: NodeId(read_u32(head, 12)),
            boot: read_u64(head, 24),
            session: read_u64(head, 32),
        })
    }

    /// Reads the head of `bytes`, which must be one whole message of the kind `kind`.
    pub(super) fn of_whole(bytes: &[u8], kind: Kind) -> Result<Self, MessageError> {
        let head = Self::decode(bytes)?;
        if head.kind != kind {
            return Err(MessageError::Kind(bytes[5]));
        }
        if head.length != bytes.len() {
            return Err(MessageError::Length(bytes.len()));
        }
        Ok(head)
    }

    /// Appends the head to `to`, with the length 0. [`complete`] writes the message's length.
    pub(super) fn encode(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&MAGIC);
        to.extend_from_slice(&[VERSION, self.kind as u8, 0, 0, 0, 0, 0, 0]);
        to.extend_from_slice(&self.node.0.to_be_bytes());
        to.extend_from_slice(&self.cluster.to_be_bytes());
        to.extend_from_slice(&self.boot.to_be_bytes());
        to.extend_from_slice(&self.session.to_be_bytes());
    }
}

/// Writes the number of bytes of the message into its head.
pub(super) fn complete(message: &mut [u8]) {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    message[8..12].copy_from_slice(&length.to_be_bytes());
}

/// An acknowledgement: the analyzer has all batches of `head`'s session before the batch `next`.
pub fn encode_ack(head: &Head, next: u64) -> Vec<u8> {
    let mut message = Vec::with_capacity(ACK_BYTES);
    let kind = Kind::Ack;
    Head { kind, ..*head }.encode(&mut message);
    message.extend_from_slice(&next.to_be_bytes());
    complete(&mut message);
    message
}

/// Reads an acknowledgement: its head, and the first batch that the analyzer lacks.
///
/// # Errors
/// Fails if the bytes are not an acknowledgement.
pub fn decode_ack(bytes: &[u8]) -> Result<(Head, u64), MessageError> {
    let head = Head::of_whole(bytes, Kind::Ack)?;
    if bytes.len() != ACK_BYTES {
        return Err(MessageError::Length(bytes.len()));
    }
    Ok((head, read_u64(bytes, HEAD_BYTES)))
}

/// The `u16` at `at`; 0 beyond the end.
pub(super) fn read_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(read(bytes, at))
}

/// The `u32` at `at`; 0 beyond the end.
pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(read(bytes, at))
}

/// The `u64` at `at`; 0 beyond the end.
pub(super) fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(read(bytes, at))
}

fn read<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let rest = bytes.get(at..).unwrap_or_default();
    rest.first_chunk().copied().unwrap_or([0; N])
}
