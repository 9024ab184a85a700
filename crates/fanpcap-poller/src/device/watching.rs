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
        sum.not_allowed -= before.not_allowed;
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

    /// A group has begun. `spread` are the packets that had come to all queues.
    pub(super) fn note_begin(&mut self, key: (Option<u16>, u32), spread: u64) {
        for watch in self.watches.values_mut().filter(|it| it.key == key) {
            if let Some(since) = watch.since.take() {
                watch.absent += spread.saturating_sub(since);
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Grant;
    use crate::queue::{Idle, Queue};
    use crate::{Burst, Packet, Policy, Source, SourceCounts, SourceError};
    use fanpcap_linux::unix::Peer;
    use fanpcap_poll::PoolKind;
    use fanpcap_poll::message::{Hello, Steering};
    use std::io;
    use std::os::fd::BorrowedFd;

    /// A source that has a packet whenever the queue looks.
    struct Endless;

    impl Source for Endless {
        fn burst<'s>(&'s mut self, burst: &mut Burst<'s>) -> Result<(), SourceError> {
            burst.push(Packet::of(&[7; 60]));
            Ok(())
        }

        fn release(&mut self) {}

        fn check(&mut self) -> Result<(), SourceError> {
            Ok(())
        }

        fn waits_on(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn transmit(&mut self, _: &[u8]) -> io::Result<bool> {
            Ok(false)
        }

        fn queue(&self) -> u16 {
            0
        }

        fn counts(&mut self) -> SourceCounts {
            SourceCounts::default()
        }
    }

    const PEER: Peer = Peer {
        pid: 9,
        user: 1000,
        group: 1000,
    };

    fn enter(device: &mut Device) -> u64 {
        let hello = Hello {
            group: Some(5),
            steering: Steering::Any,
            name: None,
            weight: 1,
            class: 0,
            snaplen: 96,
            memory: Some(4 << 20),
            wants_sent: true,
            wants_number: false,
            pair: 0,
            poller: 0,
        };
        let entered = device.enter(&hello, (PEER, Grant::default()), 1);
        entered.unwrap().member
    }

    #[test]
    fn a_packet_comes_to_a_group_or_is_absent() {
        let queue = Queue::start(Box::new(Endless), Idle::Spin, || {}).unwrap();
        let policy = Policy {
            pools: PoolKind::File,
            ..Policy::default()
        };
        let mut device = Device::new(vec![queue], 7, 1, policy).unwrap();
        let mut member = enter(&mut device);
        let packets = |device: &Device| device.queues[0].change(|it| it.fan_out.packets());
        let before = device.queues[0].change(|it| {
            let offered = it.fan_out.all_counts().offered;
            it.fan_out.packets() - offered
        });
        device.watch(1, (5, 1000), 1).unwrap();
        for _ in 0..20 {
            device.hang_up(member, 1);
            assert_eq!(device.sizes(), [0, 0]);
            member = enter(&mut device);
        }
        let (_, counts) = device.finish().unwrap();
        let absent = device.watch(1, (5, 1000), 1).unwrap().absent;
        let all = before.unwrap() + counts.offered + absent;
        assert_eq!(all, packets(&device).unwrap());
    }
}
