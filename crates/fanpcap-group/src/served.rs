//! A group that one process serves: the poller of a device. This process alone writes the group's
//! table, and knows the members by their connections. The members do not trust each other, and
//! share nothing.
//!
//! The changes of the group are those of all steered groups (`slots`). A member's connection stands
//! for its socket and its lifeline, and has a number in the place of the socket's cookie. There is
//! no descriptor store, and there are no pages: the process has the members' pools. If it dies, the
//! group ends with it, so no change is ever left unfinished.
//!
//! The process may serve a group on each of several devices. Then these groups stand beside each
//! other (`slots::beside`).

use crate::lead::is_behind;
use crate::shared::{group_key, table};
pub use crate::slots::Beside;
use crate::slots::{self, KernelOps, Slots, Unjoined, Weighed};
use crate::table::{FinalCounters, Row, State, Table, at};
use crate::view::{self, View};
use crate::weight::WeighError;
use fanpcap_buckets::Slot;
use fanpcap_buckets::layout::{SIZE, SIZE_WITH_CLASSES};
use fanpcap_linux::memory::Memory;
use fanpcap_steer::Balance;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

/// The members of a served group, as the serving process has them. A member's number is never 0,
/// and no other member of the group ever has it.
pub trait Members {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    fn now_ns(&self) -> u64;

    /// Whether a member's connection is open.
    fn is_connected(&self, member: u64) -> bool;

    /// Directs the packets for a slot into a member's pool from now on.
    fn admit(&mut self, member: u64, slot: u8);

    /// Removes a slot's pool. When this function returns, no more packets come into the pool.
    fn dismiss(&mut self, slot: u8);

    /// Waits until packets in flight are in the pools.
    fn settle(&mut self);

    /// Whether a member lives, but does not read its pool ([`Progress::hangs`]). The serving
    /// process must not call [`ServedGroup::attend`] for such a member.
    fn hangs(&self, member: u64) -> bool;

    /// Whether half of a member's pool is unread.
    fn is_half_full(&self, member: u64) -> bool;
}

/// How the reader of a member's pool gets on, as the serving process sees it.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    unread: Option<u64>,
    changed_ns: u64,
    looked_ns: u64,
}

impl Progress {
    /// Of a new pool.
    pub fn new(now_ns: u64) -> Self {
        Self {
            unread: None,
            changed_ns: now_ns,
            looked_ns: now_ns,
        }
    }

    /// Looks at the pool. `unread` is a number that changes when the reader takes a packet, or
    /// `None` if no packet is unread.
    pub fn look(&mut self, unread: Option<u64>, now_ns: u64) {
        // If nobody has looked for a while, perhaps the reader could not run either.
        let is_late = now_ns.saturating_sub(self.looked_ns) > LATE_NS;
        if unread != self.unread || is_late {
            self.unread = unread;
            self.changed_ns = now_ns;
        }
        self.looked_ns = now_ns;
    }

    /// Whether the pool has unread packets, and its reader has taken none for the time of silence.
    pub fn hangs(&self, now_ns: u64) -> bool {
        self.until_hanging(now_ns) == Some(0)
    }

    /// Nanoseconds until [`Progress::hangs`], if no look finds a change before. `None` if no packet
    /// is unread.
    pub fn until_hanging(&self, now_ns: u64) -> Option<u64> {
        self.unread?;
        Some(slots::SILENT_NS.saturating_sub(now_ns.saturating_sub(self.changed_ns)))
    }
}

/// Twice the usual time between two looks, nanoseconds.
const LATE_NS: u64 = 2 * slots::CHECK_NS;

/// A newcomer to a served group.
#[derive(Clone, Copy, Debug)]
pub struct Joining<'a> {
    /// The member's number.
    pub member: u64,
    /// The member's process id.
    pub pid: u32,
    /// The member's weight.
    pub weight: u16,
    /// The member's class, 0 to 63.
    pub class: u8,
    /// The member's name, if it has one.
    pub name: Option<&'a str>,
    /// The number that this member has in common with a member of each group beside this one: the
    /// process in the upper 56 bits, and a number of its members in a group; 0: with none.
    pub pair: u64,
}

/// A pool that a member shall read to its end, because the pool's member is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The slot of the member that is gone.
    pub slot: u8,
    /// The number of the member that is gone.
    pub member: u64,
    /// Whether the reader also gets the packets of which other members have got copies.
    pub with_copies: bool,
    /// Whether the reader has another class than the member that is gone, whose class has no other
    /// members. Then nobody reads the pool.
    pub is_given_up: bool,
}

/// A group that this process serves.
#[derive(Debug)]
pub struct ServedGroup {
    memory: Arc<Memory>,
    /// The table of the group beside this one that decides about members of both.
    beside: Option<Arc<Memory>>,
}

impl ServedGroup {
    /// Begins a group. `memory` is that of the table: zeros, with the length of a table with or
    /// without classes. `None` for memory of another length.
    pub fn begin(
        memory: Arc<Memory>,
        ifindex: u32,
        group: u16,
        balance: Option<Balance>,
        now_ns: u64,
    ) -> Option<Self> {
        if memory.len() != SIZE && memory.len() != SIZE_WITH_CLASSES {
            return None;
        }
        table(&memory).begin(group_key(ifindex, group));
        table(&memory).set_balance(balance, now_ns);
        Some(Self {
            memory,
            beside: None,
        })
    }

    /// Lets the group stand beside the group with this table, which decides about members of both;
    /// with `None`, beside none. The next [`ServedGroup::follow`] moves the buckets.
    pub fn stand_beside(&mut self, table: Option<Arc<Memory>>) {
        let is_same = match (&self.beside, &table) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        };
        if !is_same {
            self.table().set(at::FOLLOWED, u64::MAX);
            self.beside = table;
        }
    }

    /// Moves buckets as they have moved in the group beside this one.
    ///
    /// # Errors
    /// As [`ServedGroup::join`].
    pub fn follow(&self, members: &mut dyn Members) -> io::Result<()> {
        self.change(members, |slots| slots.follow_beside())
    }

    /// Whether the group beside this one has changed since the last [`ServedGroup::follow`].
    pub fn is_behind(&self) -> bool {
        let lead = self.beside.as_deref().map(table);
        lead.is_some_and(|lead| is_behind(self.table(), lead))
    }

    /// Whether another group decides about members of both.
    pub fn stands_beside(&self) -> bool {
        self.beside.is_some()
    }

    /// The weight of the member with this pair in the group beside this one, if it has such a
    /// member.
    pub fn weight_beside(&self, pair: u64) -> Option<u16> {
        self.look_beside()?.weight(pair)
    }

    /// The table of the group that decides about members of both; `None` if this group does, or
    /// while the table changes.
    pub fn look_beside(&self) -> Option<Beside> {
        Beside::of(table(self.beside.as_deref()?))
    }

    /// A number that changes with each change of slots or buckets.
    pub fn generation(&self) -> u64 {
        self.table().get(at::GENERATION)
    }

    /// Joins a newcomer, and returns its slot; `None` if the group is full. If other members own
    /// buckets, the newcomer owns none before its first [`ServedGroup::attend`].
    ///
    /// # Errors
    /// None: the operations of this group can't fail.
    pub fn join(
        &self,
        newcomer: &Joining<'_>,
        members: &mut dyn Members,
    ) -> io::Result<Option<u8>> {
        let weight = self.weight_beside(newcomer.pair);
        let row = Row {
            weight: weight.unwrap_or(newcomer.weight),
            class: newcomer.class,
            pid: newcomer.pid,
            cookie: newcomer.member,
            member: newcomer.member,
            name: newcomer.name.map_or(0, slots::digest),
            lead: newcomer.pair,
            ..Row::default()
        };
        let mut kernel = Connections {
            table: self.table(),
            beside: self.beside.as_deref().map(table),
            members,
            entering: Some(newcomer.member),
        };
        match Slots::new(self.table(), &mut kernel).join(&row, None) {
            Ok(slot) => Ok(Some(slot.0)),
            Err(Unjoined::Full) => Ok(None),
            Err(Unjoined::FdStore(error)) => Err(error),
            Err(Unjoined::Refused(never)) => match never {},
        }
    }

    /// Does the part of a member that reads its pool: takes its share, looks for members that are
    /// gone or do not read, and levels the loads of a balanced group. Returns whether the member
    /// has something to inherit ([`ServedGroup::take_over`]). Called when the member's application
    /// first looks for packets, when any connection has closed, and after [`ServedGroup::due_ns`].
    ///
    /// # Errors
    /// As [`ServedGroup::join`].
    pub fn attend(&self, member: u64, members: &mut dyn Members) -> io::Result<bool> {
        let rows = self.table().rows().map(|(_, row)| row.cookie);
        let hanging: Vec<u64> = rows.filter(|it| members.hangs(*it)).collect();
        self.change(members, |slots| {
            if !slots.is_successor(member) && slots.may_begin(member)? {
                slots.begin_share(member)?;
            }
            slots.replace_hanging(&|it| hanging.contains(&it));
            slots.level(member);
            slots.inherits(member)
        })
    }

    /// Gives a member the share of its predecessor, and makes it read the pools that it inherits.
    /// Gives away the buckets of these pools' members. Returns the pools.
    ///
    /// From before this call until it has got the pools, the member must take no packets. Otherwise
    /// it could take later packets of a flow before earlier ones that are in these pools.
    ///
    /// # Errors
    /// As [`ServedGroup::join`].
    pub fn take_over(&self, member: u64, members: &mut dyn Members) -> io::Result<Vec<Orphan>> {
        self.change(members, |slots| {
            if slots.may_begin(member)? {
                slots.begin_share(member)?;
            }
            slots.take_over(member)
        })
        .map(|slots| {
            slots
                .into_iter()
                .map(|it| self.orphan(it, member))
                .collect()
        })
    }

    fn orphan(&self, slot: Slot, reader: u64) -> Orphan {
        let row = self.table().row(slot);
        Orphan {
            slot: slot.0,
            member: row.cookie,
            with_copies: slots::succeeds(self.table(), reader, &row),
            is_given_up: !slots::is_of_class(self.table(), reader, &row),
        }
    }

    /// Nanoseconds until [`ServedGroup::attend`] is due for a member; `None` if only an event makes
    /// it due. If members have been `asked` to take no packets, their answers are such events.
    pub fn due_ns(&self, member: u64, now_ns: u64, asked: bool) -> Option<u64> {
        slots::due_of_successor_ns(self.table(), member, now_ns, asked)
    }

    /// The pool of a member that is gone has been read to its end, or given up. Frees the slot.
    ///
    /// # Errors
    /// As [`ServedGroup::join`].
    pub fn vacate(
        &self,
        gone: u64,
        counters: &FinalCounters,
        members: &mut dyn Members,
    ) -> io::Result<()> {
        self.change(members, |slots| slots.vacate(gone, counters))
    }

    /// Whether the group has no living member. Then the pools of all members that are gone get no
    /// more packets, and no member will read them.
    ///
    /// # Errors
    /// As [`ServedGroup::join`].
    pub fn is_memberless(&self, members: &mut dyn Members) -> io::Result<bool> {
        self.change(members, |slots| {
            let is_memberless = slots.is_memberless(true)?;
            if is_memberless {
                slots.stop_gone()?;
            }
            Ok(is_memberless)
        })
    }

    /// Gives a member another weight; 0 drains it.
    ///
    /// # Errors
    /// [`WeighError::Gone`], [`WeighError::Last`].
    pub fn weigh(
        &self,
        member: u64,
        weight: u16,
        members: &mut dyn Members,
    ) -> Result<(), WeighError> {
        let weighed = self.change(members, |slots| slots.weigh(member, weight));
        match weighed.map_err(WeighError::Failed)? {
            Weighed::Done => Ok(()),
            Weighed::Gone => Err(WeighError::Gone),
            Weighed::Last => Err(WeighError::Last),
        }
    }

    /// The table's content.
    pub fn look(&self) -> View {
        view::read(self.table())
    }

    fn table(&self) -> Table<'_> {
        table(&self.memory)
    }

    fn change<T>(
        &self,
        members: &mut dyn Members,
        change: impl FnOnce(&mut Slots<'_, Connections<'_>>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut kernel = Connections {
            table: self.table(),
            beside: self.beside.as_deref().map(table),
            members,
            entering: None,
        };
        change(&mut Slots::new(self.table(), &mut kernel))
    }
}

/// The connections of a group's members, in the place of the kernel's sockets.
struct Connections<'a> {
    table: Table<'a>,
    beside: Option<Table<'a>>,
    members: &'a mut dyn Members,
    entering: Option<u64>,
}

impl Connections<'_> {
    fn all(&self) -> impl Iterator<Item = u64> + use<'_> {
        let rows = self.table.rows().map(|(_, row)| row);
        rows.filter(|row| row.state != State::Free)
            .map(|row| row.cookie)
    }
}

impl KernelOps for Connections<'_> {
    type Refused = Infallible;

    fn now_ns(&self) -> u64 {
        self.members.now_ns()
    }

    fn deposit(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn enter(&mut self, slot: Slot) -> Result<(), Infallible> {
        if let Some(member) = self.entering {
            self.members.admit(member, slot.0);
        }
        Ok(())
    }

    fn leave(&mut self, slot: Slot) -> io::Result<()> {
        self.members.dismiss(slot.0);
        Ok(())
    }

    fn has_entered(&mut self, _: u64) -> io::Result<Option<bool>> {
        Ok(Some(true))
    }

    fn withdraw(&mut self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn cut(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn living(&mut self) -> io::Result<Vec<u64>> {
        let is_living = |member: &u64| self.members.is_connected(*member);
        Ok(self.all().filter(is_living).collect())
    }

    fn settle(&mut self) -> io::Result<()> {
        self.members.settle();
        Ok(())
    }

    fn told(&mut self) -> io::Result<Vec<u64>> {
        Ok(Vec::new())
    }

    fn order(&mut self) -> io::Result<Option<Vec<u64>>> {
        Ok(None)
    }

    fn refuse(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn is_half_full(&mut self, cookie: u64) -> bool {
        self.members.is_half_full(cookie)
    }

    /// Not used: see [`Members::hangs`].
    fn unread(&mut self) -> io::Result<Vec<(u64, u64)>> {
        Ok(Vec::new())
    }

    /// A member whose application has never read it keeps its share, until it loses the share as a
    /// member that does not read.
    fn borrow(&mut self, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    fn beside(&self) -> Option<Table<'_>> {
        self.beside
    }
}
