//! The table of a steered group: owners of buckets, members in slots, and the change under way.
//!
//! The table is one value of a BPF array that all members map. The group's BPF program reads the
//! table's first part ([`layout`]). The members write the whole table, and change it only while
//! they hold the group's lock. A member does not trust the values that other members wrote: no
//! value in the table can make a member panic or read outside of the table.

mod journal;
mod part;
mod sums;
mod ledger;
mod loads;
mod renumbered;
mod sticky_ids;

use crate::page::MemberId;
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::{self, BUCKETS, SLOTS};
pub(crate) use journal::Journal;
pub(crate) use loads::Loads;
pub use loads::{Elephant, Leveled};
pub(crate) use part::{Classes, Part};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub use sums::FinalCounters;

/// Views of the table's parts, in one process's mapping of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    /// The buckets and ranks of the default class.
    pub(crate) default: Part<'a>,
    /// The buckets and ranks of the other classes.
    pub(crate) classes: Classes<'a>,
    /// For each slot, the sticky id of the slot's member, if the member gets packets; 0: the slot
    /// has no member that gets packets.
    pub(crate) sticky_ids: &'a [AtomicU64],
    /// For each number that a sticky id can have, the stamp and the slot of the member whose sticky
    /// id has this number; 0: no member's sticky id has it.
    pub(crate) holders: &'a [AtomicU64],
    /// For each bucket, the packets that the BPF program of a balanced group has counted, and the
    /// count that the members last noted (`loads`).
    pub(crate) loads: &'a [AtomicU32],
    /// The words from [`layout::OWN`] on, which the members use and the BPF program does not.
    pub(crate) words: &'a [AtomicU64],
}

/// Indices of the words that only the members use.
pub(crate) mod at {
    use super::{BUCKETS, ROW, SLOTS};

    /// [`super::MAGIC`].
    pub(crate) const MAGIC: usize = 0;
    /// The group to which this table belongs: its interface index, then the group's number in the
    /// lowest 16 bits.
    pub(crate) const GROUP: usize = 1;
    /// The change under way, [`super::Journal`]; 0: no change.
    pub(crate) const JOURNAL: usize = 2;
    /// The number of sockets in the kernel's array.
    pub(crate) const POSITIONS: usize = 3;
    /// A number that rises with each change of slots or buckets.
    pub(crate) const GENERATION: usize = 4;
    /// The number of buckets that the last change moved.
    pub(crate) const MOVED: usize = 5;
    /// When the last change moved buckets, nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) const MOVED_NS: usize = 6;
    /// Which of the two [`SUMS`] is valid.
    pub(crate) const SUMS_IN_USE: usize = 7;
    /// Two places for the sums of all final counters.
    pub(crate) const SUMS: [usize; 2] = [8, 16];
    /// The placeholder that a newcomer replaces, or that is given up: the cookie of its socket, and
    /// the socket's inode. Cookie 0: the newcomer replaces no placeholder and gets the last
    /// position.
    pub(crate) const REPLACED: usize = 24;
    pub(crate) const REPLACED_MEMBER: usize = 25;
    /// Digest of the group's steering program; 0: the group has no steering program yet.
    pub(crate) const DIGEST: usize = 26;
    /// How often the device went down. A member raises the count after it has renumbered the slots
    /// in the kernel's new order.
    pub(crate) const DOWNS: usize = 27;
    /// When to check the rings of awaited members next, nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) const LOOK_NS: usize = 28;
    /// When to check next for members that do not read, nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) const CHECK_NS: usize = 29;
    /// The cookie of the group's first socket. It distinguishes the group from earlier groups with
    /// the same number.
    pub(crate) const ID: usize = 30;
    /// The [`ID`] of the group that this group follows; 0: this group follows no other group.
    pub(crate) const FOLLOWS: usize = 31;
    /// The newcomer's row while a join is under way.
    pub(crate) const NEWCOMER: usize = 32;
    /// Rows of all slots.
    pub(crate) const ROWS: usize = 40;
    /// While slots are renumbered: copies of the rows, buckets and ranks, and the new numbers of
    /// the slots.
    pub(crate) const OLD_ROWS: usize = ROWS + SLOTS * ROW;
    pub(crate) const OLD_BUCKETS: usize = OLD_ROWS + SLOTS * ROW;
    pub(crate) const OLD_RANKS: usize = OLD_BUCKETS + BUCKETS / 8;
    pub(crate) const NEW_SLOTS: usize = OLD_RANKS + SLOTS / 8;
    /// Two words for each slot, written by the last check of its ring. The first is a digest of how
    /// far the ring's reader has come; 0: the ring had no unread packets. The second is the time
    /// since which the first word has been the same, nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) const SEEN: usize = NEW_SLOTS + SLOTS / 8;
    /// Used if the group follows another group (the lead). The [`GENERATION`] that the lead had
    /// when this group last gave its buckets to the members that own them in the lead.
    pub(crate) const FOLLOWED: usize = SEEN + SLOTS * 2;
    /// How many groups follow this group, and then the keys of these groups. A key has the group's
    /// number 0 until that number is chosen.
    pub(crate) const DEVICE_GROUPS: usize = FOLLOWED + 1;
    /// The lower half of the word is the number of members that have been succeeded by other
    /// members with the same names. The upper half is part of the last successor's cookie, so that
    /// a repeated change does not count this successor twice.
    pub(crate) const TAKEOVERS: usize = DEVICE_GROUPS + 1 + super::DEVICE_GROUPS_MAX;
    /// Two words for each slot, used if an engine puts each slot's packets into the rings of the
    /// slot's member (XDP): how many packets came for the slot before its present member, and how
    /// many of these packets were dropped.
    pub(crate) const COUNTED_BEFORE: usize = TAKEOVERS + 1;
    /// The engine's counts for the whole group, as a member last published them.
    pub(crate) const LEDGER: usize = COUNTED_BEFORE + 2 * SLOTS;
    /// The count of the ledger that groups on packet sockets have, too: packets that the steering
    /// program dropped. There the members' filters count them.
    pub(crate) const NOWHERE: usize = LEDGER + 2;
    /// The group slot that the group has in the registry of its device.
    pub(crate) const GROUP_SLOT: usize = LEDGER + super::LEDGER_WORDS;
    /// 1 if an engine runs the group's BPF program and this BPF program has counters, which a
    /// member then publishes; otherwise 0.
    pub(crate) const COUNTS: usize = GROUP_SLOT + 1;
    /// The exchange of the group's BPF program that is under way; see `crate::exchange`.
    pub(crate) const EXCHANGE: usize = COUNTS + 1;
    /// 0: the group is not balanced; 1: only idle buckets move; 2: live flows move too.
    pub(crate) const BALANCE: usize = EXCHANGE + 1;
    /// When the next round of a balanced group is due, and when the last one was, nanoseconds of
    /// `CLOCK_MONOTONIC`.
    pub(crate) const ROUND_NS: usize = BALANCE + 1;
    pub(crate) const ROUNDED_NS: usize = ROUND_NS + 1;
    /// The result of the last round: the number of rounds so far; how far the busiest member's load
    /// was above its share, in parts of 1000; the elephants ([`super::Elephant`]).
    pub(crate) const ROUNDS: usize = ROUNDED_NS + 1;
    pub(crate) const IMBALANCE: usize = ROUNDS + 1;
    pub(crate) const ELEPHANTS: usize = IMBALANCE + 1;
    /// The slots that got buckets in the last round, one bit each.
    pub(crate) const RECEIVED: usize = ELEPHANTS + super::ELEPHANTS_MAX;
    /// The id of the engine that fills the members' rings.
    pub(crate) const ENGINE: usize = RECEIVED + SLOTS / 64;
    /// 1: the kernel's group may lack the group's BPF program. The newcomer that enters an empty
    /// group of the kernel writes this before it enters, and clears it after it has set the BPF
    /// program.
    pub(crate) const LACKS_PROGRAM: usize = ENGINE + 1;
    /// How often newcomers have asked the founder for rings (`crate::spares`), the size of the
    /// rings that a newcomer waits for, and how many rings the founder has put into the descriptor
    /// store, less those that it has removed.
    pub(crate) const ASKED_RINGS: usize = LACKS_PROGRAM + 1;
    pub(crate) const ASKED_BYTES: usize = ASKED_RINGS + 1;
    pub(crate) const MADE_RINGS: usize = ASKED_BYTES + 1;
    /// 1: a member may have made the host lose the device's packets, so the founder gives them back
    /// when the group has no member. A group without a founder does not use this word.
    pub(crate) const STEALS: usize = MADE_RINGS + 1;
    pub(crate) const END: usize = STEALS + 1;
}

/// How many words a slot's row has.
pub(crate) const ROW: usize = 8;

/// How many words a ledger has.
pub(crate) const LEDGER_WORDS: usize = 7;

/// The largest number of groups that can follow one group: a handle has at most 64 devices.
pub(crate) const DEVICE_GROUPS_MAX: usize = 63;

/// The largest number of elephants that a round names.
pub(crate) const ELEPHANTS_MAX: usize = 4;

const _: () = assert!(layout::OWN + at::END * 8 <= layout::LOADS);
const _: () = assert!(layout::OWN + at::NOWHERE * 8 == layout::NOWHERE);

/// "FPTABLE" and the version of the layout.
pub(crate) const MAGIC: u64 = u64::from_be_bytes(*b"FPTABLE6");

/// The first word of a slot's row.
fn row_at(slot: Slot) -> usize {
    at::ROWS + usize::from(slot.0) * ROW
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The slot has no socket: the kernel's array ends before this slot.
    #[default]
    Free,
    /// A newcomer. It owns no bucket until its application looks for packets.
    Newcomer,
    /// A member that has its share of the buckets.
    Live,
    /// A member that is gone. No member reads its ring yet.
    Dead,
    /// A member that is gone, whose ring another member reads.
    TakenOver,
    /// A placeholder: the socket of a member that is gone, whose ring has been read to the end.
    Vacant,
    /// A named member that is gone and for whose successor the group waits. The member keeps its
    /// buckets, and packets still come into its ring.
    Awaited,
}

impl State {
    /// The state with this number in a table; [`State::Free`] if no state has it.
    pub fn of(byte: u8) -> Self {
        let all = [
            Self::Free,
            Self::Newcomer,
            Self::Live,
            Self::Dead,
            Self::TakenOver,
            Self::Vacant,
            Self::Awaited,
        ];
        all.get(usize::from(byte)).copied().unwrap_or_default()
    }
}

/// The table's row for a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) state: State,
    /// How often the member's socket has reported that the device went down, modulo 256, to compare
    /// with [`at::DOWNS`].
    pub(crate) downs: u8,
    /// The member's weight; 0: no share. In a dead member's row, 0 means that the member's buckets
    /// have been given away.
    pub(crate) weight: u16,
    /// The member's class, 0 to 63.
    pub(crate) class: u8,
    /// The member's process id, in the process's own PID namespace.
    pub(crate) pid: u32,
    /// The socket in the slot, by `SO_COOKIE`.
    pub(crate) cookie: u64,
    /// The inode of the socket, which identifies the member whose socket this is or was.
    pub(crate) member: u64,
    /// The cookie of the other member that reads this member's ring; 0: no other member reads it.
    /// If the value is the member's own cookie, no other member reads the ring. In the row of a
    /// living member this value asks other members to read the ring. In the row of an awaited or
    /// dead member it says that the member's lifeline is cut.
    pub(crate) taker: u64,
    /// When this state began, nanoseconds of `CLOCK_MONOTONIC`.
    pub(crate) since_ns: u64,
    /// The digest of the member's name; 0: the member has no name.
    pub(crate) name: u64,
    /// The member's sticky id (`sticky_ids`): a stamp, and a number in the lowest byte. A successor
    /// gets the sticky id of its predecessor.
    pub(crate) sticky_id: u64,
    /// The cookie of the member's socket in the lead, if the group follows another group. In a
    /// group of a poller: the pair of the member (`slots::beside`); 0: it belongs to no other
    /// member.
    pub(crate) lead: u64,
}

impl Row {
    fn encode(&self) -> [u64; ROW] {
        let pid = u64::from(self.pid & PID_MAX) | (u64::from(self.class) << PID_BITS);
        let [pid, weight] = [pid << 32, u64::from(self.weight) << 16];
        let head = pid | weight | (u64::from(self.downs) << 8) | self.state as u64;
        [
            head,
            self.cookie,
            self.member,
            self.taker,
            self.since_ns,
            self.name,
            self.sticky_id,
            self.lead,
        ]
    }

    /// Whether a member has the slot, or the slot waits for a successor.
    pub(crate) fn is_occupied(&self) -> bool {
        matches!(self.state, State::Live | State::Newcomer | State::Awaited)
    }

    /// Whether the member owns its share of the buckets.
    pub(crate) fn owns(&self) -> bool {
        matches!(self.state, State::Live | State::Awaited) && self.weight > 0
    }

    /// Whether the member is dead and still has its share. A dead member keeps its share until
    /// another member takes its ring.
    pub(crate) fn keeps(&self) -> bool {
        self.state == State::Dead && self.weight > 0
    }

    fn decode(words: [u64; ROW]) -> Self {
        let [head, cookie, member, taker, since_ns, name, sticky_id, lead] = words;
        let [state, downs, low, high, pid @ ..] = head.to_le_bytes();
        let [.., above_pid] = pid;
        let pid = u32::from_le_bytes(pid);
        Self {
            state: State::of(state),
            downs,
            weight: u16::from_le_bytes([low, high]),
            class: above_pid >> (PID_BITS - 24),
            pid: pid & PID_MAX,
            cookie,
            member,
            taker,
            since_ns,
            name,
            sticky_id,
            lead,
        }
    }
}

/// Bits of a process id in a row; the kernel's process ids are at most 2^22 (`PID_MAX_LIMIT`). The
/// class is in the bits above.
const PID_BITS: u32 = 26;
const PID_MAX: u32 = (1 << PID_BITS) - 1;

impl<'a> Table<'a> {
    /// Turns a table of zeros into the table of a new group.
    pub(crate) fn begin(&self, group: u64) {
        self.set(at::GROUP, group);
        self.set(at::MAGIC, MAGIC);
    }

    /// Ends the founder's group: the group with this key begins anew, with another table. A
    /// newcomer that has found this one, and makes its rings now, then finds another steering
    /// program here.
    pub(crate) fn end(&self) {
        self.set(at::DIGEST, 0);
        self.set(at::GROUP, 0);
    }

    /// Whether this is the table of the group with this key.
    pub(crate) fn is_of(&self, group: u64) -> bool {
        self.get(at::MAGIC) == MAGIC && self.get(at::GROUP) == group
    }

    pub(crate) fn get(&self, at: usize) -> u64 {
        let word = self.words.get(at);
        word.map_or(0, |word| word.load(Ordering::Acquire))
    }

    pub(crate) fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            word.store(value, Ordering::Release);
        }
    }

    fn words_at<const N: usize>(&self, at: usize) -> [u64; N] {
        std::array::from_fn(|index| self.get(at + index))
    }

    fn set_words<const N: usize>(&self, at: usize, values: [u64; N]) {
        for (index, value) in values.into_iter().enumerate() {
            self.set(at + index, value);
        }
    }

    /// The number of sockets in the kernel's array, according to the table.
    pub(crate) fn positions(&self) -> usize {
        usize::try_from(self.get(at::POSITIONS)).map_or(SLOTS, |count| count.min(SLOTS))
    }

    // Not inlined: the function has many callers, and the library stays smaller.
    #[inline(never)]
    pub(crate) fn row(&self, slot: Slot) -> Row {
        Row::decode(self.words_at(row_at(slot)))
    }

    #[inline(never)]
    pub(crate) fn set_row(&self, slot: Slot, row: &Row) {
        self.set_words(row_at(slot), row.encode());
    }

    /// The slots of the kernel's array with their rows.
    pub(crate) fn rows(self) -> impl Iterator<Item = (Slot, Row)> + use<'a> {
        let slots = (0..=u8::MAX).map(Slot).take(self.positions());
        slots.map(move |slot| (slot, self.row(slot)))
    }

    /// Whether `members` has all members that the group has had so far.
    pub(crate) fn has_had_only(self, members: &BTreeSet<MemberId>) -> bool {
        let mut taken = self.rows().filter(|(_, row)| row.state != State::Free);
        let is_one = |row: Row| members.contains(&MemberId::of_socket(row.member));
        self.gone().members == 0 && taken.all(|(_, row)| is_one(row))
    }

    /// Notes how many buckets have moved, and when.
    pub(crate) fn note_moved(&self, buckets: usize, now_ns: u64) {
        self.set(at::MOVED, buckets as u64);
        self.set(at::MOVED_NS, now_ns);
    }

    pub(crate) fn slot_of(&self, cookie: u64) -> Option<Slot> {
        let mut rows = self.rows();
        rows.find_map(|(slot, row)| (row.cookie == cookie).then_some(slot))
    }

    pub(crate) fn newcomer(&self) -> Row {
        Row::decode(self.words_at(at::NEWCOMER))
    }

    pub(crate) fn set_newcomer(&self, row: &Row) {
        self.set_words(at::NEWCOMER, row.encode());
    }
}
