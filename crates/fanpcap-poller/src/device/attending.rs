//! What the members of a group do for it, the poller does for them: it looks after members that
//! are gone or do not read. It does so for members that read, as on other engines their own
//! processes do.

use super::member::{Admission, Side, State};
use super::{Device, Notice, Told};
use crate::accounts::Account;
use fanpcap_group::served::{Members, Orphan, ServedGroup};
use fanpcap_poll::message::Takeover;
use std::cmp::Reverse;

/// How soon to look at a group again in which members hang, or no member reads, nanoseconds.
const LOOK_NS: u64 = 500_000_000;

/// A group in which something may be due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DueGroup {
    /// The group's number in the queues.
    pub(crate) index: u8,
    /// The user for whom the group counts.
    pub(crate) account: Account,
    /// Since when it is due.
    pub(crate) due_ns: u64,
}

impl Device {
    /// Does what is due at a time.
    pub fn tick(&mut self, now_ns: u64) -> Vec<Notice> {
        self.hear();
        let due = self.due_groups(now_ns).into_iter();
        due.flat_map(|it| self.tick_group(it.index, now_ns))
            .collect()
    }

    /// Nanoseconds until the next [`Device::tick`]; `None` if none is due.
    pub fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let due_ns = self.groups.iter().flatten().map(|it| it.due_ns).min()?;
        (due_ns < u64::MAX).then(|| due_ns.saturating_sub(now_ns))
    }

    /// The groups in which something may be due.
    pub(crate) fn due_groups(&self, now_ns: u64) -> Vec<DueGroup> {
        let groups = (0..).zip(&self.groups);
        let due = groups.filter_map(|(index, group)| {
            let group = group.as_ref().filter(|it| it.due_ns <= now_ns)?;
            Some(DueGroup {
                index,
                account: group.account,
                due_ns: group.due_ns,
            })
        });
        due.collect()
    }

    /// Does what is due in a group, and notes when something is due there again. To compute this
    /// takes long if the group has many members, so it is computed once after a change.
    pub(crate) fn tick_group(&mut self, index: u8, now_ns: u64) -> Vec<Notice> {
        let mut due = self.due_of(index, now_ns);
        let mut notices = Vec::new();
        if due == Some(0) {
            notices = self.attend(index, now_ns);
            due = self.due_of(index, now_ns);
        }
        let readers = self.readers(index);
        let hangs = readers.filter_map(|(_, it)| it.until_hanging(now_ns));
        let due = due.into_iter().chain(hangs).min();
        if let Some(Some(group)) = self.groups.get_mut(usize::from(index)) {
            group.due_ns = due.map_or(u64::MAX, |due| now_ns.saturating_add(due));
        }
        notices
    }

    fn due_of(&self, index: u8, now_ns: u64) -> Option<u64> {
        let group = self.groups.get(usize::from(index))?.as_ref()?;
        if group.has_news {
            return Some(0);
        }
        if let Some(until_ns) = group.waits_ns {
            return Some(until_ns.saturating_sub(now_ns));
        }
        let awake = self.awake(index, now_ns);
        let is_asking = self.is_asking(index, now_ns);
        let waits = |member| is_asking || self.is_asked(member);
        let due = awake.iter();
        let due = due.filter_map(|&it| group.served.due_ns(it, now_ns, waits(it)));
        let answer = self.until_answer(index, group.attended_ns, now_ns);
        let due = due.chain(answer).min();
        if !awake.is_empty() && awake.len() == self.readers(index).count() {
            return due;
        }
        // A member may read again, or the group may only wait for a successor.
        let since_ns = now_ns.saturating_sub(group.attended_ns);
        let look = LOOK_NS.saturating_sub(since_ns);
        Some(due.map_or(look, |due| due.min(look)))
    }

    /// The members of a group whose applications have begun to read.
    fn readers(&self, index: u8) -> impl Iterator<Item = (u64, &super::Member)> {
        let members = self.members.iter().map(|(member, it)| (*member, it));
        members.filter(move |(_, it)| it.group == index && it.state == State::Reads)
    }

    /// The members of a group that read, as far as the poller sees. Members that have taken packets
    /// lately come first, because a member that hangs while its pool is empty is not seen to hang.
    fn awake(&self, index: u8, now_ns: u64) -> Vec<u64> {
        let awake = self.readers(index).filter(|(_, it)| !it.hangs(now_ns));
        let mut awake: Vec<(Reverse<u64>, u64)> = awake
            .map(|(member, it)| (Reverse(it.took_ns), member))
            .collect();
        awake.sort_unstable();
        awake.into_iter().map(|(_, member)| member).collect()
    }

    /// Lets all members of a group that read do their part. Ends the group if it has no member.
    pub(super) fn attend(&mut self, index: u8, now_ns: u64) -> Vec<Notice> {
        if let Some(Some(group)) = self.groups.get_mut(usize::from(index)) {
            (group.has_news, group.due_ns) = (false, 0);
        }
        if self.waits_for_death(index, now_ns) {
            return Vec::new();
        }
        self.change(index, now_ns, None, ServedGroup::follow);
        if let Some(Some(group)) = self.groups.get_mut(usize::from(index)) {
            group.attended_ns = now_ns;
        }
        let members = self.members.values_mut().filter(|it| it.group == index);
        members.for_each(|it| it.look(now_ns));
        self.note_hanging(index, now_ns);
        let mut successors = Vec::new();
        for member in self.awake(index, now_ns) {
            let inherits = self.change(index, now_ns, None, |group, side| {
                group.attend(member, side)
            });
            successors.extend(matches!(inherits, Some(Ok(true))).then_some(member));
        }
        let notices = self.ask(index, &successors, now_ns);
        let is_memberless = self.change(index, now_ns, None, ServedGroup::is_memberless);
        if matches!(is_memberless, Some(Ok(true))) {
            self.end(index);
        }
        notices
    }

    /// A member takes no packets, as it was asked, until it goes on. It inherits what is there.
    /// `None` if it was not asked.
    pub fn holds(&mut self, member: u64, now_ns: u64) -> Option<Vec<Notice>> {
        let it = self.members.get_mut(&member)?;
        it.asked_ns.take()?;
        it.look(now_ns);
        let (index, hangs) = (it.group, it.hangs(now_ns));
        let mut notices = Vec::new();
        if !hangs && !self.waits_for_death(index, now_ns) {
            let orphans = self.change(index, now_ns, None, |group, side| {
                group.take_over(member, side)
            });
            let orphans = orphans.and_then(Result::ok).unwrap_or_default();
            let orphans = orphans.into_iter();
            notices.extend(orphans.filter_map(|it| self.inherit(member, it, now_ns)));
        }
        notices.push(Notice {
            to: member,
            what: Told::GoOn,
        });
        notices.extend(self.attend(index, now_ns));
        Some(notices)
    }

    /// Makes a member read a pool, unless nobody reads it.
    fn inherit(&mut self, to: u64, orphan: Orphan, now_ns: u64) -> Option<Notice> {
        if orphan.is_given_up {
            self.vacate(orphan.member, now_ns);
            return None;
        }
        let gone = self.members.get_mut(&orphan.member)?;
        gone.taker = Some(to);
        let takeover = Takeover {
            pool: gone.size,
            member: orphan.member,
            with_copies: orphan.with_copies,
        };
        let what = Told::Takeover(takeover, gone.pool.clone());
        Some(Notice { to, what })
    }

    /// The pool of a member that is gone has been read to its end, or given up.
    pub(super) fn vacate(&mut self, gone: u64, now_ns: u64) {
        let Some(it) = self.members.get(&gone) else {
            return;
        };
        let (index, counters) = (it.group, it.final_counters());
        self.change(index, now_ns, None, |group, side| {
            group.vacate(gone, &counters, side)
        });
        self.remove(gone);
    }

    pub(super) fn change<T>(
        &mut self,
        index: u8,
        now_ns: u64,
        admission: Option<Admission>,
        change: impl FnOnce(&ServedGroup, &mut dyn Members) -> T,
    ) -> Option<T> {
        let group = self.groups.get_mut(usize::from(index))?.as_mut()?;
        group.due_ns = 0;
        if admission.is_some() {
            // A newcomer must not show the counts of the slot's former member.
            group.seen = None;
        }
        let mut side = Side {
            queues: &self.queues,
            members: &mut self.members,
            index,
            admission,
            now_ns,
        };
        let changed = change(&group.served, &mut side);
        self.announce(index);
        Some(changed)
    }
}
