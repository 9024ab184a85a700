//! What the members of a group do for it, the poller does for them: it looks after members that
//! are gone or do not read. It does so for members that read, as on other engines their own
//! processes do.

use super::member::{Admission, Side, State};
use super::{Device, Notice};
use fanpcap_group::served::{Members, Orphan, ServedGroup};
use fanpcap_poll::message::Takeover;
use std::cmp::Reverse;

/// How soon to look at a group again in which members hang, or no member reads, nanoseconds.
const LOOK_NS: u64 = 500_000_000;

impl Device {
    /// Does what is due at a time.
    pub fn tick(&mut self, now_ns: u64) -> Vec<Notice> {
        let indices: Vec<u8> = (0..).zip(&self.groups).map(|(index, _)| index).collect();
        let is_due = |index: &u8| self.due_of(*index, now_ns).is_some_and(|due| due == 0);
        let due: Vec<u8> = indices.into_iter().filter(is_due).collect();
        let notices = due.into_iter().flat_map(|index| self.attend(index, now_ns));
        notices.collect()
    }

    /// Nanoseconds until the next [`Device::tick`]; `None` if none is due.
    pub fn due_ns(&self, now_ns: u64) -> Option<u64> {
        let indices = (0..).zip(&self.groups).map(|(index, _)| index);
        indices.filter_map(|index| self.due_of(index, now_ns)).min()
    }

    fn due_of(&self, index: u8, now_ns: u64) -> Option<u64> {
        let group = self.groups.get(usize::from(index))?.as_ref()?;
        let awake = self.awake(index, now_ns);
        let due = awake
            .iter()
            .map(|&member| group.served.due_ns(member, now_ns));
        let due = due.flatten().min();
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
            group.attended_ns = now_ns;
        }
        let members = self.members.values_mut().filter(|it| it.group == index);
        members.for_each(|it| it.look(now_ns));
        let mut notices = Vec::new();
        for member in self.awake(index, now_ns) {
            let orphans = self.change(index, now_ns, None, |group, side| {
                group.attend(member, side)
            });
            let orphans = orphans.and_then(Result::ok).unwrap_or_default();
            notices.extend(orphans.into_iter().filter_map(|it| self.notice(member, it)));
        }
        let is_memberless = self.change(index, now_ns, None, ServedGroup::is_memberless);
        if matches!(is_memberless, Some(Ok(true))) {
            self.end(index);
        }
        notices
    }

    fn notice(&mut self, to: u64, orphan: Orphan) -> Option<Notice> {
        let gone = self.members.get_mut(&orphan.member)?;
        gone.taker = Some(to);
        Some(Notice {
            to,
            takeover: Takeover {
                pool: gone.size,
                member: orphan.member,
                with_copies: orphan.with_copies,
            },
            pool: gone.pool.clone(),
        })
    }

    pub(super) fn change<T>(
        &mut self,
        index: u8,
        now_ns: u64,
        admission: Option<Admission>,
        change: impl FnOnce(&ServedGroup, &mut dyn Members) -> T,
    ) -> Option<T> {
        let group = self.groups.get_mut(usize::from(index))?.as_mut()?;
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
        Some(change(&group.served, &mut side))
    }
}
