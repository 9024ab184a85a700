//! The messages between a member and a poller: one message is one packet of a `SOCK_SEQPACKET`
//! socket, at most [`LONGEST`] bytes. A newcomer sends a [`Hello`], and the poller answers with a
//! [`Welcome`], which carries descriptors, or with a [`Refused`]. The connection stays open as long
//! as the member lives. Later the member says that its application reads, and the poller hands it
//! the pools of members that are gone ([`Takeover`]). The member takes no packets meanwhile
//! ([`Answer::Hold`], [`Request::Holds`], [`Answer::GoOn`]).
//!
//! Each message begins with a head of 8 bytes, which has the same meaning in all versions: `fanp`,
//! the version, and the kind of the message. So both sides can name both versions in their errors.
//! All numbers are little-endian. A text is its length, of 16 bits, and its bytes in UTF-8.
//!
//! A message that is decoded has valid contents, and encodes to the same bytes.

mod fields;
mod request;
mod answer;
mod question;

pub use answer::{Answer, Opened, Refused, Takeover, Welcome};
use fields::{Reader, Writer};
pub use question::{
    ENDED_MAX, EndedMember, MemberCounts, Question, Reply, SeenGroup, SeenLedger, SeenRounds,
    SeenSlot, Watched,
};
pub use request::{Balance, FRAME_MAX, Hello, Program, Request, Steering};
use std::error::Error;
use std::fmt;

/// The version of the messages.
pub const VERSION: u16 = 1;

/// The most bytes of a message.
pub const LONGEST: usize = 64 << 10;

/// The most bytes of a steering program or of an error's text, so that a message has room for it.
pub const TEXT_MAX: usize = LONGEST - 2048;

/// The most bytes of a member's name.
pub const NAME_MAX: usize = 255;

const MAGIC: [u8; 4] = *b"fanp";

/// Bytes of a message's head.
const HEAD_LEN: usize = 8;

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes have no head, or are more than [`LONGEST`]: they are no message of any version.
    NoMessage,
    /// The message has this version.
    Version(u16),
    /// The message is of a kind that the receiver does not expect.
    Kind(u16),
    /// The message's contents are wrong from this field on.
    Field(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMessage => f.write_str("the other side is no poller, and no member of one"),
            Self::Version(other) => write!(
                f,
                "the other side speaks version {other} of the poller's messages, and this side \
                 version {VERSION}: poller and library must be of the same fanpcap"
            ),
            Self::Kind(kind) => write!(f, "an unexpected message of kind {kind}"),
            Self::Field(field) => write!(f, "a message with a wrong {field}"),
        }
    }
}

impl Error for Malformed {}

/// Begins a message of this kind.
fn head(kind: u16) -> Writer {
    let mut out = Writer::default();
    out.u32(u32::from_le_bytes(MAGIC));
    out.u16(VERSION);
    out.u16(kind);
    out
}

/// Checks the head, and returns the message's kind and a reader of its fields.
fn open(bytes: &[u8]) -> Result<(u16, Reader<'_>), Malformed> {
    let (magic, rest) = bytes.split_first_chunk().ok_or(Malformed::NoMessage)?;
    let (&[a, b, c, d], fields) = rest.split_first_chunk().ok_or(Malformed::NoMessage)?;
    if *magic != MAGIC || bytes.len() > LONGEST {
        return Err(Malformed::NoMessage);
    }
    match u16::from_le_bytes([a, b]) {
        VERSION => Ok((u16::from_le_bytes([c, d]), Reader::new(fields))),
        other => Err(Malformed::Version(other)),
    }
}

#[cfg(test)]
mod tests;
