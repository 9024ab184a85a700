//! The messages of members.

use super::fields::{Reader, Writer};
use super::{HEAD_LEN, LONGEST, Malformed, TEXT_MAX, head, open};

/// How a group shares packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steering {
    /// As the group does now; for the first member, as the mode `flow` does.
    Any,
    /// By this steering program.
    Program(Program),
    /// As the group does now; for the first member, by this steering program. The group had it at a
    /// former poller ([`super::Welcome::steering`]).
    Former(Program),
}

/// A steering program, and the options of its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The steering program's text.
    pub text: String,
    /// How many flows to remember (`+sticky`).
    pub flows: Option<u32>,
    /// The buckets that may move to level the members' loads (`+balance`).
    pub balance: Option<Balance>,
}

/// The buckets that may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Buckets without live flows.
    Idle,
    /// All buckets.
    All,
}

/// What a newcomer asks of a poller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
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
    /// Whether the poller begins a new group and chooses its number. `group` is `None` then.
    pub wants_number: bool,
    /// A number that handles of one process have in common, and no others; 0: none. The poller
    /// ignores the lowest byte. If a group is on several devices of a poller, such handles get both
    /// directions of a flow.
    pub pair: u64,
    /// The poller that has to serve the device, by its number ([`super::Welcome::poller`]), because
    /// it serves another device of the handle; 0: any. Then the handle's groups on both devices
    /// have to be one.
    pub poller: u64,
}

/// The most classes of a group's members.
const CLASSES: u8 = 64;

const HELLO: u16 = 1;
const READS: u16 = 16;
const READ_OUT: u16 = 17;
const FRAME: u16 = 19;
const HOLDS: u16 = 20;

/// The most bytes of a frame in a message.
pub const FRAME_MAX: usize = LONGEST - HEAD_LEN;

/// A message of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first message of each connection.
    Hello(Hello),
    /// The member's application looks for packets for the first time.
    Reads,
    /// The member has read the pool of this member to its end, or can't read it.
    ReadOut(u64),
    /// The poller shall send this frame on the device, 1 to [`FRAME_MAX`] bytes. There is no
    /// answer.
    Frame(Vec<u8>),
    /// The member takes no packets until the poller lets it go on: the answer to
    /// [`super::Answer::Hold`].
    Holds,
}

impl Request {
    /// The message, for a member to send.
    ///
    /// # Errors
    /// As [`Hello::encode`].
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        match self {
            Self::Hello(hello) => hello.encode(),
            Self::Reads => Ok(head(READS).done()),
            Self::Holds => Ok(head(HOLDS).done()),
            Self::ReadOut(member) => {
                let mut out = head(READ_OUT);
                out.u64(*member);
                Ok(out.done())
            }
            Self::Frame(frame) => {
                let mut out = head(FRAME);
                match (1..=FRAME_MAX).contains(&frame.len()) {
                    true => out.bytes(frame),
                    false => return Err(Malformed::Field("frame")),
                }
                Ok(out.done())
            }
        }
    }

    /// Reads the message that a member has sent.
    ///
    /// # Errors
    /// Why the bytes are no such message.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut from) = open(bytes)?;
        let request = match kind {
            HELLO => return Hello::read(from).map(Self::Hello),
            READS => Self::Reads,
            HOLDS => Self::Holds,
            READ_OUT => Self::ReadOut(from.u64("member")?),
            FRAME => Self::Frame(from.rest("frame")?),
            _ => return Err(Malformed::Kind(kind)),
        };
        from.end()?;
        Ok(request)
    }
}

impl Hello {
    /// The message, for a member to send.
    ///
    /// # Errors
    /// The field that is too long, or that no poller accepts.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = head(HELLO);
        out.option(self.group.map(u32::from));
        match &self.steering {
            Steering::Any => out.u8(0),
            Steering::Program(program) => {
                out.u8(1);
                program.write(&mut out)?;
            }
            Steering::Former(program) => {
                out.u8(2);
                program.write(&mut out)?;
            }
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
        if self.wants_number && self.group.is_some() {
            return Err(Malformed::Field("group"));
        }
        out.u8(self.wants_number.into());
        out.u64(self.pair);
        out.u64(self.poller);
        Ok(out.done())
    }

    fn read(mut from: Reader<'_>) -> Result<Self, Malformed> {
        let hello = Self {
            group: from.group()?,
            steering: match from.u8("steering")? {
                0 => Steering::Any,
                1 => Steering::Program(Program::read(&mut from)?),
                2 => Steering::Former(Program::read(&mut from)?),
                _ => return Err(Malformed::Field("steering")),
            },
            name: from.name_or_none("name")?,
            weight: from.u16("weight")?,
            class: from.u8("class")?,
            snaplen: from.u32("snapshot length")?,
            memory: from.option("memory")?,
            wants_sent: from.flag("direction")?,
            wants_number: from.flag("new group")?,
            pair: from.u64("pair")?,
            poller: from.u64("poller")?,
        };
        from.end()?;
        match hello {
            _ if hello.class >= CLASSES => Err(Malformed::Field("class")),
            _ if hello.wants_number && hello.group.is_some() => Err(Malformed::Field("group")),
            _ => Ok(hello),
        }
    }
}

impl Program {
    pub(super) fn write(&self, out: &mut Writer) -> Result<(), Malformed> {
        out.option(self.flows);
        out.u8(match self.balance {
            None => 0,
            Some(Balance::Idle) => 1,
            Some(Balance::All) => 2,
        });
        out.text("steering program", &self.text, TEXT_MAX)
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            flows: from.option("number of flows")?,
            balance: match from.u8("balance")? {
                0 => None,
                1 => Some(Balance::Idle),
                2 => Some(Balance::All),
                _ => return Err(Malformed::Field("balance")),
            },
            text: from.text("steering program", TEXT_MAX)?,
        })
    }
}
