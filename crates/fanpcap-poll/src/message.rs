//! The messages between a member and a poller: one message is one packet of a `SOCK_SEQPACKET`
//! socket, at most [`LONGEST`] bytes. A member sends a [`Hello`], and the poller answers with a
//! [`Welcome`], which carries descriptors, or with a [`Refused`].
//!
//! Each message begins with a head of 8 bytes, which has the same meaning in all versions: `fanp`,
//! the version, and the kind of the message. So both sides can name both versions in their errors.
//! All numbers are little-endian. A text is its length, of 16 bits, and its bytes in UTF-8.
//!
//! A message that is decoded has valid contents, and encodes to the same bytes.

mod fields;

use crate::pool_file::{PoolFile, PoolSize};
use fields::{Reader, Writer};
use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

/// The version of the messages.
pub const VERSION: u16 = 1;

/// The most bytes of a message.
pub const LONGEST: usize = 64 << 10;

/// The most bytes of a steering program or of an error's text, so that a message has room for it.
pub const TEXT_MAX: usize = LONGEST - 2048;

/// The most bytes of the name of a device or of a member, or of a mode.
pub const NAME_MAX: usize = 255;

const MAGIC: [u8; 4] = *b"fanp";

const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const REFUSED: u16 = 3;

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

/// How a group shares packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    /// The group's present mode; for the first member, the default mode.
    Any,
    /// The mode with this name, and its options.
    Mode(String),
    /// The steering program with this text.
    Program(String),
}

/// What a newcomer asks of a poller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The device, as the application has named it.
    pub device: String,
    /// The group's number; `None` for a group of the handle's own.
    pub group: Option<u16>,
    /// How the group shares packets.
    pub steering: Steering,
    /// The member's name, if it has one.
    pub name: Option<String>,
    /// The member's weight.
    pub weight: u16,
    /// The member's class, 0 to 63.
    pub class: u8,
    /// Bytes of each packet to keep.
    pub snaplen: u32,
    /// Bytes of the pool; `None` for the usual size.
    pub memory: Option<u32>,
    /// Whether the member wants packets that the host sends.
    pub wants_sent: bool,
}

/// The most classes of a group's members.
const CLASSES: u8 = 64;

impl Hello {
    /// The message, for a member to send.
    ///
    /// # Errors
    /// The field that is too long, or that no poller accepts.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = head(HELLO);
        out.name("device", &self.device)?;
        out.option(self.group.map(u32::from));
        let (kind, text) = match &self.steering {
            Steering::Any => (0, ""),
            Steering::Mode(mode) => (1, &mode[..]),
            Steering::Program(text) => (2, &text[..]),
        };
        out.u8(kind);
        match self.steering {
            Steering::Any => {}
            Steering::Mode(_) => out.name("mode", text)?,
            Steering::Program(_) => out.text("steering program", text, TEXT_MAX)?,
        }
        out.name_or_none("name", self.name.as_deref())?;
        out.u16(self.weight);
        if self.class >= CLASSES {
            return Err(Malformed::Field("class"));
        }
        out.u8(self.class);
        out.u32(self.snaplen);
        out.option(self.memory);
        out.u8(self.wants_sent.into());
        Ok(out.done())
    }

    /// Reads the message that a member has sent.
    ///
    /// # Errors
    /// Why the bytes are no such message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut from) = open(bytes)?;
        if kind != HELLO {
            return Err(Malformed::Kind(kind));
        }
        let hello = Self {
            device: from.name("device")?,
            group: match from.option("group")? {
                Some(group) => Some(u16::try_from(group).map_err(|_| Malformed::Field("group"))?),
                None => None,
            },
            steering: match from.u8("steering")? {
                0 => Steering::Any,
                1 => Steering::Mode(from.name("mode")?),
                2 => Steering::Program(from.text("steering program", TEXT_MAX)?),
                _ => return Err(Malformed::Field("steering")),
            },
            name: from.name_or_none("name")?,
            weight: from.u16("weight")?,
            class: from.u8("class")?,
            snaplen: from.u32("snapshot length")?,
            memory: from.option("memory")?,
            wants_sent: from.flag("direction")?,
        };
        from.end()?;
        match hello.class < CLASSES {
            true => Ok(hello),
            false => Err(Malformed::Field("class")),
        }
    }
}

/// The poller's answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The newcomer is a member.
    Welcome(Welcome),
    /// The newcomer is no member.
    Refused(Refused),
}

/// What a new member gets. The message carries the descriptors of the pool and of the bell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The pool's size.
    pub pool: PoolSize,
    /// The member's slot in its group.
    pub slot: u8,
    /// The index of the device in the poller's network namespace.
    pub ifindex: u32,
    /// The device's hardware type (`ARPHRD_*`, linux/if_arp.h).
    pub hardware: u16,
}

/// Why a newcomer is no member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason's section in docs/errors.md.
    pub slug: String,
    /// The reason, and what to do.
    pub text: String,
}

/// A member's part of a pool.
#[derive(Debug)]
pub struct Opened {
    /// The member's pool.
    pub pool: PoolFile,
    /// The socket that becomes readable when the poller wakes the member.
    pub bell: OwnedFd,
}

impl Welcome {
    /// Opens the message's descriptors.
    ///
    /// # Errors
    /// `InvalidData` when they are not a pool of this size and a bell.
    pub fn open(&self, descriptors: Vec<OwnedFd>) -> io::Result<Opened> {
        let two = <[OwnedFd; 2]>::try_from(descriptors);
        let [pool, bell] = two.map_err(|_| io::ErrorKind::InvalidData)?;
        let pool = PoolFile::open(pool, self.pool)?;
        Ok(Opened { pool, bell })
    }
}

impl Answer {
    /// The message, for a poller to send. Cuts the text of a refusal.
    ///
    /// # Errors
    /// The field that no member accepts.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        match self {
            Self::Welcome(welcome) => {
                let mut out = head(WELCOME);
                let PoolSize {
                    lanes,
                    block_len,
                    blocks,
                } = welcome.pool;
                if welcome.pool.file_len().is_none() {
                    return Err(Malformed::Field("pool"));
                }
                for number in [lanes, block_len, blocks] {
                    out.u32(number);
                }
                out.u8(welcome.slot);
                out.u32(welcome.ifindex);
                out.u16(welcome.hardware);
                Ok(out.done())
            }
            Self::Refused(refused) => {
                let mut out = head(REFUSED);
                out.name("slug", &refused.slug)?;
                let mut end = refused.text.len().min(TEXT_MAX);
                while !refused.text.is_char_boundary(end) {
                    end -= 1;
                }
                out.text("text", &refused.text[..end], TEXT_MAX)?;
                Ok(out.done())
            }
        }
    }

    /// Reads the message that a poller has sent.
    ///
    /// # Errors
    /// Why the bytes are no such message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut from) = open(bytes)?;
        let answer = match kind {
            WELCOME => {
                let pool = PoolSize {
                    lanes: from.u32("pool")?,
                    block_len: from.u32("pool")?,
                    blocks: from.u32("pool")?,
                };
                pool.file_len().ok_or(Malformed::Field("pool"))?;
                Self::Welcome(Welcome {
                    pool,
                    slot: from.u8("slot")?,
                    ifindex: from.u32("device")?,
                    hardware: from.u16("device")?,
                })
            }
            REFUSED => Self::Refused(Refused {
                slug: from.name("slug")?,
                text: from.text("text", TEXT_MAX)?,
            }),
            _ => return Err(Malformed::Kind(kind)),
        };
        from.end()?;
        Ok(answer)
    }
}

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
