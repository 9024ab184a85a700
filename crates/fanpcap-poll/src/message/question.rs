//! The messages of processes that watch the groups of a poller: their questions, and the replies.
//! Such a process is no member. It sends its first question in the place of a *hello*.

mod contents;

use super::{Malformed, TEXT_MAX, head, open};
use contents::{read_group, read_watched, write_group, write_watched};

const LOOK: u16 = 64;
const WEIGH: u16 = 65;
const WATCH: u16 = 66;
const STOP: u16 = 67;
const GROUP: u16 = 80;
const NO_GROUP: u16 = 81;
const DONE: u16 = 82;
const NOT_DONE: u16 = 83;
const WATCHED: u16 = 84;

/// A question about the groups of the asking process's user; root asks about all groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Asks for the first group that has this index at its poller, or a greater one.
    Look(u8),
    /// Asks for another weight of a member; 0 drains the member.
    Weigh {
        /// The member's number.
        member: u64,
        /// The weight.
        weight: u16,
    },
    /// Asks the poller to keep, for this connection, the accounts of members that end, and for
    /// those that it has kept so far. The group is the user's own.
    Watch(u16),
    /// Asks the poller to give no more packets to the user's own group, until it has a newcomer or
    /// this connection closes.
    Stop(u16),
}

/// The poller's reply to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A group.
    Group(Box<SeenGroup>),
    /// There is no further group.
    NoGroup,
    /// The change was made.
    Done,
    /// The change was not made, and why.
    NotDone(String),
    /// A watched group.
    Watched(Box<Watched>),
}

/// A group, as its poller sees it. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenGroup {
    /// The group's index at the poller.
    pub index: u8,
    /// The group's number; `None` for the group of one handle.
    pub number: Option<u16>,
    /// The user of the members.
    pub user: u32,
    /// The device's index in the poller's network namespace.
    pub ifindex: u32,
    /// The inode of the poller's PID namespace, in which members have their process ids.
    pub pid_namespace: u64,
    /// The mode, or the beginning of the steering program.
    pub title: String,
    /// The packets that came to the group.
    pub ledger: SeenLedger,
    /// Packets that the source received since it was opened, and those of them that it dropped
    /// because the poller was late.
    pub source: [u64; 2],
    /// Sums over the members that are gone: their number, packets received, dropped, taken by
    /// themselves, taken by others, unread, and the number of members with unknown counts.
    pub gone: [u64; 7],
    /// How many members have been succeeded by members with the same names.
    pub takeovers: u64,
    /// How many changes of slots or buckets there have been.
    pub changes: u64,
    /// How many buckets the last change moved, and when; zeros if no bucket has moved.
    pub moved: [u64; 2],
    /// The last round of a balanced group.
    pub rounds: Option<SeenRounds>,
    /// The slots.
    pub slots: Vec<SeenSlot>,
}

/// The packets that came to a group. If no packet goes to several members, `offered` is the sum of
/// all other fields except `at_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenLedger {
    /// When they were counted.
    pub at_ns: u64,
    /// Packets that came to the group.
    pub offered: u64,
    /// Packets that the steering program dropped.
    pub nowhere: u64,
    /// Packets for which there was no member.
    pub no_member: u64,
    /// Packets put into members' pools.
    pub produced: u64,
    /// Packets for which a member's pool had no room.
    pub dropped: u64,
    /// Packets that the host sends, for members that do not want them.
    pub unwanted: u64,
    /// Packets for which the poller had no time, because the groups of the group's user take the
    /// most time.
    pub no_time: u64,
    /// Packets that came while the group was stopped.
    pub stopped: u64,
    /// Packets that the policy's filter has left out.
    pub not_allowed: u64,
}

/// The last round of a balanced group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenRounds {
    /// Whether buckets with live flows move too.
    pub moves_all: bool,
    /// How many rounds there were.
    pub rounds: u64,
    /// How far the busiest member was above its share, in parts of 1000.
    pub above: u64,
    /// Buckets with more packets than a member's share: the bucket, its slot, and its part of all
    /// packets in parts of 1000.
    pub elephants: Vec<(u16, u8, u16)>,
}

/// A slot of a group, and its member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenSlot {
    /// The slot's state, as the group's table has it.
    pub state: u8,
    /// The member's number.
    pub member: u64,
    /// The member's process id.
    pub pid: u32,
    /// How many buckets the slot owns.
    pub buckets: u16,
    /// The member's weight.
    pub weight: u16,
    /// The member's class.
    pub class: u8,
    /// When the state began.
    pub since_ns: u64,
    /// The slot of the member that reads this slot's pool.
    pub taker: Option<u8>,
    /// The digest of the member's name; 0: the member has no name.
    pub name: u64,
    /// Bytes of the member's pool; 0: the poller has no such member any more.
    pub pool_bytes: u32,
    /// Whether the member wants packets that the host sends.
    pub wants_sent: bool,
    /// When the member joined.
    pub joined_ns: u64,
    /// The member's packets.
    pub counts: MemberCounts,
    /// When the application last looked for packets, as the member itself says; 0: never;
    /// `u64::MAX`: it waits.
    pub looked_ns: u64,
}

/// A member's packets since it joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounts {
    /// Packets put into its pool.
    pub produced: u64,
    /// Packets for which its pool had no room.
    pub dropped: u64,
    /// Packets that it has taken out of its pool, as the member itself says.
    pub taken: u64,
    /// Those of these packets that its filter has rejected, as the member itself says.
    pub rejected: u64,
}

/// A watched group. The counts begin with the watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// The sum over the group, and over groups with its number that have ended.
    pub ledger: SeenLedger,
    /// Packets that came while there was no such group, after there had been one.
    pub absent: u64,
    /// Packets that the source received, and that it dropped because the poller was late.
    pub source: [u64; 2],
    /// Members that have ended and were not in an earlier reply.
    pub ended: Vec<EndedMember>,
    /// Members that have ended and whose accounts were not kept.
    pub forgotten: u64,
}

/// The account of a member that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndedMember {
    /// The member's number.
    pub member: u64,
    /// The member's process id.
    pub pid: u32,
    /// The member's packets. Those taken are those that it has taken itself, and those that another
    /// member has taken out of its pool and rejected.
    pub counts: MemberCounts,
    /// Packets that another member has taken out of its pool, and that its filter has not rejected.
    pub inherited: u64,
}

/// The most ended members in a reply.
pub const ENDED_MAX: usize = 512;

impl Question {
    /// The message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out;
        match *self {
            Self::Look(index) => {
                out = head(LOOK);
                out.u8(index);
            }
            Self::Weigh { member, weight } => {
                out = head(WEIGH);
                out.u64(member);
                out.u16(weight);
            }
            Self::Watch(group) => {
                out = head(WATCH);
                out.u16(group);
            }
            Self::Stop(group) => {
                out = head(STOP);
                out.u16(group);
            }
        }
        out.done()
    }

    /// Reads a question.
    ///
    /// # Errors
    /// Why the bytes are no question.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut from) = open(bytes)?;
        let question = match kind {
            LOOK => Self::Look(from.u8("group")?),
            WEIGH => Self::Weigh {
                member: from.u64("member")?,
                weight: from.u16("weight")?,
            },
            WATCH => Self::Watch(from.u16("group")?),
            STOP => Self::Stop(from.u16("group")?),
            _ => return Err(Malformed::Kind(kind)),
        };
        from.end()?;
        Ok(question)
    }
}

impl Reply {
    /// The message.
    ///
    /// # Errors
    /// The field that is too long.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out;
        match self {
            Self::Group(group) => {
                out = head(GROUP);
                write_group(&mut out, group)?;
            }
            Self::NoGroup => out = head(NO_GROUP),
            Self::Done => out = head(DONE),
            Self::NotDone(why) => {
                out = head(NOT_DONE);
                out.text("text", why, TEXT_MAX)?;
            }
            Self::Watched(watched) => {
                out = head(WATCHED);
                write_watched(&mut out, watched)?;
            }
        }
        Ok(out.done())
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// Why the bytes are no reply.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (kind, mut from) = open(bytes)?;
        let reply = match kind {
            GROUP => Self::Group(Box::new(read_group(&mut from)?)),
            NO_GROUP => Self::NoGroup,
            DONE => Self::Done,
            NOT_DONE => Self::NotDone(from.text("text", TEXT_MAX)?),
            WATCHED => Self::Watched(Box::new(read_watched(&mut from)?)),
            _ => return Err(Malformed::Kind(kind)),
        };
        from.end()?;
        Ok(reply)
    }
}

impl MemberCounts {
    /// Packets that came for the member and that its filter has not rejected, dropped ones
    /// included.
    pub fn received(&self) -> u64 {
        let all = self.produced.saturating_add(self.dropped);
        all.saturating_sub(self.rejected)
    }

    /// Packets that the application has got.
    pub fn delivered(&self) -> u64 {
        self.taken.saturating_sub(self.rejected)
    }

    /// Packets in the pool that the member has not taken.
    pub fn unread(&self) -> u64 {
        self.produced.saturating_sub(self.taken)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::message::{LONGEST, NAME_MAX};

    fn group(slots: usize) -> SeenGroup {
        let slot = SeenSlot {
            state: 2,
            member: 7,
            pid: 8,
            buckets: 4096,
            weight: 3,
            class: 63,
            since_ns: 9,
            taker: Some(5),
            name: u64::MAX,
            pool_bytes: 1 << 20,
            wants_sent: true,
            joined_ns: 4,
            counts: MemberCounts::of([1, 2, 3, 4]),
            looked_ns: 5,
        };
        SeenGroup {
            index: 3,
            number: Some(5),
            user: 1000,
            ifindex: 4,
            pid_namespace: 6,
            title: "x".repeat(NAME_MAX),
            ledger: SeenLedger::of([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            source: [17, 18],
            gone: [7, 6, 5, 4, 3, 2, 1],
            takeovers: 11,
            changes: 12,
            moved: [13, 14],
            rounds: Some(SeenRounds {
                moves_all: true,
                rounds: 15,
                above: 16,
                elephants: vec![(4095, 255, 1000); 8],
            }),
            slots: vec![slot; slots],
        }
    }

    #[test]
    fn all_messages_are_read_as_they_were_written_and_are_not_too_long() {
        let ended = EndedMember {
            member: 1,
            pid: 2,
            counts: MemberCounts::of([3, 4, 5, 6]),
            inherited: 7,
        };
        let watched = Watched {
            ledger: SeenLedger::of([10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
            absent: 8,
            source: [9, 10],
            ended: vec![ended; ENDED_MAX],
            forgotten: 11,
        };
        for reply in [
            Reply::Group(Box::new(group(256))),
            Reply::Group(Box::default()),
            Reply::NoGroup,
            Reply::Done,
            Reply::NotDone("not yours".to_owned()),
            Reply::Watched(Box::new(watched)),
        ] {
            let bytes = reply.encode().unwrap();
            assert!(bytes.len() <= LONGEST);
            assert_eq!(Reply::decode(&bytes), Ok(reply));
            for end in 0..bytes.len().min(900) {
                assert!(Reply::decode(&bytes[..end]).is_err(), "{end}");
            }
        }
        for question in [
            Question::Look(63),
            Question::Weigh {
                member: u64::MAX,
                weight: 0,
            },
            Question::Watch(65535),
            Question::Stop(1),
        ] {
            let bytes = question.encode();
            assert_eq!(Question::decode(&bytes), Ok(question));
            assert!(Question::decode(&bytes[..bytes.len() - 1]).is_err());
        }
    }

    #[test]
    fn forged_counts_overflow_nothing() {
        let forged = MemberCounts::of([u64::MAX, 1, 5, u64::MAX]);
        let sums = [forged.received(), forged.delivered(), forged.unread()];
        assert_eq!(sums, [0, 0, u64::MAX - 5]);
    }
}
