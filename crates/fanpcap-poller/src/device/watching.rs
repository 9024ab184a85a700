//! What the poller keeps for a process that watches a group: the accounts of members that end, and
//! the packets that come while there is no such group.

use super::Device;
use super::look::ledger;
use super::member::Member;
use super::refusals::NO_QUEUE;
use crate::accounts::Account;
use crate::group::GroupCounts;
use fanpcap_poll::message::{ENDED_MAX, EndedMember, Watched};

/// What a connection watches. Counts begin with the watch.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The group's number and user.
    key: (Option<u16>, u32),
    /// The user for whom the watch counts.
    account: Account,
    /// The counts of the group when the watch began.
    before: GroupCounts,
    /// The counts of groups of this number that have ended.
    past: GroupCounts,
    absent: u64,
    /// Packets that had come to all queues when the last such group ended, if there is none now.
    since: Option<u64>,
    /// The source's counts when the watch began.
    source: [u64; 2],
    ended: Vec<EndedMember>,
    forgotten: u64,
}

/// The most watches of a user, because the accounts that they keep are in no other limit.
const WATCHES_MAX: usize = 8;

/// The most accounts that are kept until the watcher asks for them.
const KEPT_MAX: usize = 4 * ENDED_MAX;

impl Device {
    /// What a connection watches, or begins to watch: the group with this number of this user.
    ///
    /// # Errors
    /// Why not, in words.
    pub(crate) fn watch(
        &mut self,
        connection: u64,
        (number, user): (u16, u32),
        now_ns: u64,
    ) -> Result<Watched, &'static str> {
        let key = (Some(number), user);
        let account = self.account(user);
        let watches = self.watches.iter();
        let others = watches.filter(|(it, watch)| **it != connection && watch.account == account);
        if others.count() >= WATCHES_MAX {
            return Err(MANY_WATCHES);
        }
        let (group, source, spread) = self.counts_of(key).ok_or(NO_QUEUE)?;
        let watches = &mut self.watches;
        let watch = watches.entry(connection).or_insert_with(|| Watch {
            key,
            account,
            before: group,
            past: GroupCounts::default(),
            absent: 0,
            since: None,
            source,
            ended: Vec::new(),
            forgotten: 0,
        });
        if watch.key != key {
            return Err(OTHER_GROUP);
        }
        let mut sum = watch.past;
        sum.add_all(&group);
        let mut sum = ledger(&sum, now_ns);
        let before = ledger(&watch.before, 0);
        sum.offered -= before.offered;
        sum.nowhere -= before.nowhere;
        sum.no_member -= before.no_member;
        sum.produced -= before.produced;
        sum.dropped -= before.dropped;
        sum.unwanted -= before.unwanted;
        sum.no_time -= before.no_time;
        sum.stopped -= before.stopped;
        let absent = watch.since.map_or(0, |since| spread.saturating_sub(since));
        let given = watch.ended.len().min(ENDED_MAX);
        Ok(Watched {
            ledger: sum,
            absent: watch.absent + absent,
            source: [0, 1].map(|at: usize| source[at].saturating_sub(watch.source[at])),
            ended: watch.ended.drain(..given).collect(),
            forgotten: watch.forgotten,
        })
    }

    /// The counts of a group, zeros if there is no such group; those of the source; and the packets
    /// that have come to all queues.
    fn counts_of(
        &self,
        (number, user): (Option<u16>, u32),
    ) -> Option<(GroupCounts, [u64; 2], u64)> {
        let index = self.find(number, user);
        let (mut sum, mut source, mut spread) = (GroupCounts::default(), [0; 2], 0);
        for queue in &self.queues {
            let (group, of_source, seen) = queue.change(move |queue| {
                let group = index.and_then(|index| queue.fan_out.counts(index));
                (group, queue.state().0, queue.fan_out.packets())
            })?;
            sum.add_all(&group.unwrap_or_default());
            source[0] += of_source.received.saturating_sub(of_source.skipped);
            source[1] += of_source.dropped;
            spread += seen;
        }
        Some((sum, source, spread))
    }

    /// A connection has closed. Groups that it stopped get packets again: members that came since,
    /// or that do not belong to the process that asked, shall not wait for a newcomer.
    pub(crate) fn unwatch(&mut self, connection: u64) {
        self.watches.remove(&connection);
        let groups = (0..).zip(&mut self.groups);
        for (index, group) in groups.filter_map(|(index, it)| Some((index, it.as_mut()?))) {
            if group.stopped_by != Some(connection) {
                continue;
            }
            group.stopped_by = None;
            for queue in &self.queues {
                queue.change(move |queue| queue.fan_out.start(index));
            }
        }
    }

    /// A group has begun.
    pub(super) fn note_begin(&mut self, number: Option<u16>, user: u32) {
        let is_watched = |it: &Watch| it.key == (number, user) && it.since.is_some();
        if !self.watches.values().any(is_watched) {
            return;
        }
        let spread = self.counts_of((number, user)).map_or(0, |(.., it)| it);
        for watch in self.watches.values_mut().filter(|it| is_watched(it)) {
            let since = watch.since.take().unwrap_or(spread);
            watch.absent += spread.saturating_sub(since);
        }
    }

    /// A group has ended, with these counts. `spread` are the packets that had come to all queues.
    pub(super) fn note_end(&mut self, key: (Option<u16>, u32), counts: &GroupCounts, spread: u64) {
        for watch in self.watches.values_mut().filter(|it| it.key == key) {
            watch.past.add_all(counts);
            watch.since = Some(spread);
        }
    }

    /// A member's pool is given up.
    pub(super) fn note_removed(&mut self, number: u64, member: &Member) {
        let group = self.groups.get(usize::from(member.group));
        let Some(group) = group
            .and_then(Option::as_ref)
            .filter(|_| member.joined_ns > 0)
        else {
            return;
        };
        let key = (group.number, group.user);
        let (counts, inherited) = member.account();
        let ended = EndedMember {
            member: number,
            pid: member.pid,
            counts,
            inherited,
        };
        for watch in self.watches.values_mut().filter(|it| it.key == key) {
            match watch.ended.len() < KEPT_MAX {
                true => watch.ended.push(ended),
                false => watch.forgotten += 1,
            }
        }
    }

    /// Gives no more packets to the present members of a user's group. A newcomer starts the group
    /// again, and so does the end of the connection.
    pub(crate) fn stop(
        &mut self,
        connection: u64,
        (number, user): (u16, u32),
    ) -> Result<(), String> {
        let index = self.find(Some(number), user);
        let index = index.ok_or_else(|| format!("there is no group {number}"))?;
        for queue in &self.queues {
            queue.change(move |queue| queue.fan_out.stop(index));
        }
        if let Some(Some(group)) = self.groups.get_mut(usize::from(index)) {
            group.seen = None;
            group.stopped_by = Some(connection);
        }
        Ok(())
    }
}

const MANY_WATCHES: &str = "this user watches as many groups of the poller's device as a user may";
const OTHER_GROUP: &str = "this connection watches another group";
