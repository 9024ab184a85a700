//! The messages of pollers.

use super::fields::{Reader, Writer};
use super::request::Program;
use super::{Malformed, TEXT_MAX, head, open};
use crate::pool_file::{PoolFile, PoolSize};
use std::io;
use std::os::fd::OwnedFd;

const WELCOME: u16 = 2;
const REFUSED: u16 = 3;
const TAKEOVER: u16 = 32;
const HOLD: u16 = 33;
const GO_ON: u16 = 34;

/// A message of a poller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The newcomer is a member.
    Welcome(Welcome),
    /// The newcomer is no member.
    Refused(Refused),
    /// The member shall read another member's pool.
    Takeover(Takeover),
    /// The member shall take no packets until [`Answer::GoOn`], and answer with
    /// [`super::Request::Holds`].
    Hold,
    /// The member shall take packets again. It has got the pools that it shall read.
    GoOn,
}

/// What a new member gets. The message carries the descriptors of the pool and of the bell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The pool's size.
    pub pool: PoolSize,
    /// The member's slot in its group.
    pub slot: u8,
    /// The index of the device in the poller's network namespace.
    pub ifindex: u32,
    /// The device's hardware type (`ARPHRD_*`, linux/if_arp.h).
    pub hardware: u16,
    /// The group's number, if it has one.
    pub group: Option<u16>,
    /// Whether the member may send frames ([`super::Request::Frame`]).
    pub may_send: bool,
    /// How the group shares packets, if the member has a group with a number and did not say it. If
    /// the member comes back first, the group begins with the same steering program
    /// ([`super::Steering::Former`]).
    pub steering: Option<Program>,
    /// The poller's number: of all devices that one poller serves.
    pub poller: u64,
}

/// Why a newcomer is no member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The reason's section in docs/errors.md.
    pub slug: String,
    /// The reason, and what to do.
    pub text: String,
}

/// A pool that the member shall read to its end, because the pool's member is gone. The message
/// carries the pool's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// The pool's size.
    pub pool: PoolSize,
    /// The number of the member that is gone.
    pub member: u64,
    /// Whether the member also reads the packets of which other members have got copies.
    pub with_copies: bool,
}

impl Takeover {
    /// Opens the message's descriptor.
    ///
    /// # Errors
    /// `InvalidData` when it is no pool of this size.
    pub fn open(&self, descriptors: Vec<OwnedFd>) -> io::Result<PoolFile> {
        let one = <[OwnedFd; 1]>::try_from(descriptors);
        let [pool] = one.map_err(|_| io::ErrorKind::InvalidData)?;
        PoolFile::open(pool, self.pool)
    }
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
                write_size(&mut out, welcome.pool)?;
                out.u8(welcome.slot);
                out.u32(welcome.ifindex);
                out.u16(welcome.hardware);
                out.option(welcome.group.map(u32::from));
                out.u8(welcome.may_send.into());
                out.u8(welcome.steering.is_some().into());
                if let Some(program) = &welcome.steering {
                    program.write(&mut out)?;
                }
                out.u64(welcome.poller);
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
            Self::Takeover(takeover) => {
                let mut out = head(TAKEOVER);
                write_size(&mut out, takeover.pool)?;
                out.u64(takeover.member);
                out.u8(takeover.with_copies.into());
                Ok(out.done())
            }
            Self::Hold => Ok(head(HOLD).done()),
            Self::GoOn => Ok(head(GO_ON).done()),
        }
    }

    /// Reads the message that a poller has sent.
    ///
    /// # Errors
    /// Why the bytes are no such message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut from) = open(bytes)?;
        let answer = match kind {
            WELCOME => Self::Welcome(Welcome {
                pool: read_size(&mut from)?,
                slot: from.u8("slot")?,
                ifindex: from.u32("device")?,
                hardware: from.u16("device")?,
                group: from.group()?,
                may_send: from.flag("permission")?,
                steering: match from.flag("steering")? {
                    true => Some(Program::read(&mut from)?),
                    false => None,
                },
                poller: from.u64("poller")?,
            }),
            TAKEOVER => Self::Takeover(Takeover {
                pool: read_size(&mut from)?,
                member: from.u64("member")?,
                with_copies: from.flag("copies")?,
            }),
            HOLD => Self::Hold,
            GO_ON => Self::GoOn,
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

fn write_size(out: &mut Writer, size: PoolSize) -> Result<(), Malformed> {
    if size.file_len().is_none() {
        return Err(Malformed::Field("pool"));
    }
    for number in [size.lanes, size.block_len, size.blocks] {
        out.u32(number);
    }
    Ok(())
}

fn read_size(from: &mut Reader<'_>) -> Result<PoolSize, Malformed> {
    let size = PoolSize {
        lanes: from.u32("pool")?,
        block_len: from.u32("pool")?,
        blocks: from.u32("pool")?,
    };
    match size.file_len() {
        Some(_) => Ok(size),
        None => Err(Malformed::Field("pool")),
    }
}
