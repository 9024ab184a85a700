//! The groups of a device begin and end.

use super::Device;
use super::refusals::{
    MANY_GROUPS, NO_QUEUE, NO_TABLE, OTHER_FILTER, OTHER_STEERING, failed, refused,
};
use super::steering::{self, Compiled};
use super::together::Key;
use crate::access::Grant;
use crate::accounts::Account;
use crate::filter::{DeviceFilter, Filter};
use crate::flows;
use crate::group::{GroupCounts, NewGroup, ReadyGroup};
use crate::limits::{Limits, Reached, Taken};
use fanpcap_buckets::layout::SIZE_WITH_CLASSES;
use fanpcap_group::served::ServedGroup;
use fanpcap_linux::file::sealed;
use fanpcap_poll::message::{Hello, Program, Refused, Steering};
use fanpcap_ring::pool::PoolCounts;
use fanpcap_steer::native::Evaluator;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// The counts of a group in all queues, and those of its slots.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenCounts {
    pub(super) group: GroupCounts,
    pub(super) slots: BTreeMap<u8, PoolCounts>,
    /// Packets that the source received and dropped.
    pub(super) source: [u64; 2],
}

/// From this number on, numbers of groups are great.
const GREAT: u16 = 1 << 15;

/// The first unused number from a great one on; if there is none, the greatest one before.
fn great_number(begin: u16, is_unused: impl FnMut(&u16) -> bool) -> Option<u16> {
    let begin = begin | GREAT;
    (begin..=u16::MAX).chain((0..begin).rev()).find(is_unused)
}

#[derive(Debug)]
pub(super) struct Group {
    /// The group's number for members; `None` for the group of one handle.
    pub(super) number: Option<u16>,
    /// The user of the group's members. Members of another user could take packets from them, so
    /// each user has numbers of its own.
    pub(super) user: u32,
    /// The user for whom the group counts.
    pub(super) account: Account,
    digest: u64,
    /// The steering program, for members that have not said it.
    program: Program,
    /// Which packets the members may have. The group keeps the filter of its first member, as a
    /// member may get any packet of the group, and the pools of others that are gone.
    filter: Option<Arc<Filter>>,
    /// The mode or the steering program, for watchers.
    pub(super) title: String,
    /// The counts that watchers got last, and when they were read.
    pub(super) seen: Option<(u64, SeenCounts)>,
    /// The connection that stopped the group last.
    pub(super) stopped_by: Option<u64>,
    pub(super) served: ServedGroup,
    /// The generation of the table of which the devices beside this one know.
    pub(super) announced: u64,
    /// Whether the groups beside this one have changed since its members were last looked after.
    pub(super) has_news: bool,
    /// Until when nothing is done, because a process seems to die ([`Device::waits_for_death`]).
    pub(super) waits_ns: Option<u64>,
    /// When the group's members were last looked after.
    pub(super) attended_ns: u64,
    /// When something may be due in the group; 0 after a change, `u64::MAX` if nothing is due
    /// before the next one.
    pub(super) due_ns: u64,
    /// Bytes of the table, and of the flows that the queues remember.
    pub(super) bytes: u64,
}

impl Group {
    /// By what the group is known on all devices of the poller; `None` for the group of one handle.
    pub(super) fn key(&self) -> Option<Key> {
        Some((self.number?, self.user))
    }
}

impl Device {
    /// The group that has this number for members of this user.
    pub(super) fn find(&self, number: Option<u16>, user: u32) -> Option<u8> {
        let key = (Some(number?), user);
        let mut groups = (0..).zip(&self.groups);
        groups.find_map(|(index, group)| {
            let is_it = |it: &Group| (it.number, it.user) == key;
            group.as_ref().is_some_and(is_it).then_some(index)
        })
    }

    /// A number that none of this user's groups has. Users choose small numbers themselves, so this
    /// is a great one. It is random, because members of a former poller may wait with a number that
    /// it chose.
    pub(super) fn unused_number(&self, user: u32) -> Option<u16> {
        let [low, high, ..] = RandomState::new().hash_one(user).to_le_bytes();
        let begin = u16::from_le_bytes([low, high]);
        let is_here = |number| self.find(Some(number), user).is_some();
        let is_unused = |number: &u16| !is_here(*number) && !self.neighbors.has((*number, user));
        great_number(begin, is_unused)
    }

    /// The number of the group at an index.
    pub(super) fn number(&self, index: u8) -> Option<u16> {
        self.groups[usize::from(index)].as_ref()?.number
    }

    /// The steering program of the group at an index, for the welcome of a newcomer that has not
    /// said it. The group of one handle begins again as it began.
    pub(super) fn steering(&self, index: u8, hello: &Hello) -> Option<Program> {
        let group = self.groups[usize::from(index)].as_ref()?;
        let is_asked = matches!(hello.steering, Steering::Program(_));
        (group.number.is_some() && !is_asked).then(|| group.program.clone())
    }

    /// Checks that a newcomer's steering program and its policy's filter are the group's.
    pub(super) fn check(&self, index: u8, hello: &Hello, grant: &Grant) -> Result<(), Refused> {
        let group = self.groups[usize::from(index)].as_ref();
        if group.is_none_or(|it| it.filter != grant.filter) {
            return Err(refused("poller-policy", OTHER_FILTER));
        }
        let Steering::Program(asked) = &hello.steering else {
            return Ok(());
        };
        let asked = steering::compile(asked)?;
        match group.is_some_and(|group| group.digest == asked.digest) {
            true => Ok(()),
            false => Err(refused("poller-steering", OTHER_STEERING)),
        }
    }

    /// Begins a group in all queues, for a user with these limits and this filter. `number` is
    /// `None` for the group of one handle.
    pub(super) fn begin(
        &mut self,
        hello: &Hello,
        (number, user): (Option<u16>, u32),
        (limits, filter): (&Limits, Option<Arc<Filter>>),
        now_ns: u64,
    ) -> Result<u8, Refused> {
        let account = self.account(user);
        let groups = self.groups.iter().flatten();
        let groups: Taken = groups.map(|it| (it.account, 1)).collect();
        let checked = limits.groups.check(&groups, account, 1);
        let many = |reached| refused("poller-groups", MANY_GROUPS.of(reached));
        checked.map_err(many)?;
        let free = (0..).zip(&self.groups).find(|(_, group)| group.is_none());
        let (index, _) = free.ok_or_else(|| many(Reached::OfAll))?;
        let compiled = self.first_steering(&hello.steering, (number, user))?;
        let options = compiled.options;
        let flows = options.flows.map_or(0, flows::len) * self.queues.len() as u64;
        let bytes = SIZE_WITH_CLASSES as u64 + flows;
        self.check_bytes(account, limits, bytes)?;
        let len = u32::try_from(SIZE_WITH_CLASSES).unwrap_or(u32::MAX);
        let table = sealed::create_memory(c"fanpcap_table", len);
        let table = Arc::new(table.map_err(|error| failed(&error))?);
        let memory = || Arc::clone(&table);
        let shown = number.unwrap_or_default();
        let served = ServedGroup::begin(memory(), self.ifindex, shown, options.balance, now_ns);
        let served = served.ok_or_else(|| refused("poller-failed", NO_TABLE))?;
        self.groups[usize::from(index)] = Some(Group {
            number,
            user,
            account,
            digest: compiled.digest,
            program: compiled.program.clone(),
            filter: filter.clone(),
            title: compiled.title.clone(),
            has_news: false,
            seen: None,
            stopped_by: None,
            served,
            announced: 0,
            waits_ns: None,
            attended_ns: now_ns,
            due_ns: 0,
            bytes,
        });
        let group = NewGroup {
            steering: Evaluator::of_group(&compiled.tree),
            table: memory(),
            options,
            user: account.0,
            filter: filter.map(|filter| DeviceFilter {
                filter,
                ifindex: self.ifindex,
            }),
        };
        match self.install(index, &group) {
            Ok(spread) => self.note_begin((number, user), spread),
            Err(refused) => {
                self.end(index);
                return Err(refused);
            }
        }
        if let Some(number) = number {
            self.neighbors.begin((number, user), &compiled, &table);
            self.look_around(index);
        }
        Ok(index)
    }

    /// The steering program of a new group: the one that its first member asks for, or that of the
    /// group of the same number and user on another device, or the one that the first member had
    /// before. Otherwise the group has the mode `flow`.
    fn first_steering(
        &self,
        steering: &Steering,
        (number, user): (Option<u16>, u32),
    ) -> Result<Arc<Compiled>, Refused> {
        let beside = || self.neighbors.steering((number?, user));
        let own = || steering::compile(&steering::first(steering)).map(Arc::new);
        match steering {
            Steering::Program(_) => own(),
            Steering::Any | Steering::Former(_) => beside().map_or_else(own, Ok),
        }
    }

    /// Makes the group for each queue, in this thread, and puts it into the queue. Returns the
    /// packets that had come to all queues before.
    fn install(&self, index: u8, group: &NewGroup) -> Result<u64, Refused> {
        let mut spread = 0;
        for queue in &self.queues {
            let ready = group.for_other_queue().ready();
            let ready = ready.ok_or_else(|| refused("poller-failed", NO_TABLE))?;
            let installed = queue.change(move |queue| {
                let seen = queue.fan_out.packets();
                queue.fan_out.install(index, ready).map(|()| seen)
            });
            let Some(Ok(seen)) = installed else {
                return Err(refused("poller-failed", NO_QUEUE));
            };
            spread += seen;
        }
        Ok(spread)
    }

    /// Ends a group without members. Packets in their pools are unread.
    pub(super) fn end(&mut self, index: u8) {
        let (mut sum, mut spread) = (GroupCounts::default(), 0);
        for queue in &self.queues {
            let ended =
                queue.change(move |queue| (queue.fan_out.end(index), queue.fan_out.packets()));
            let (ended, seen) = ended.unwrap_or_default();
            let counts = ended.as_ref().map(ReadyGroup::counts);
            sum.add_all(&counts.unwrap_or_default());
            spread += seen;
        }
        self.ended.add_all(&sum);
        let members = self.members.iter().filter(|(_, it)| it.group == index);
        let members: Vec<u64> = members.map(|(member, _)| *member).collect();
        members.into_iter().for_each(|member| self.remove(member));
        if let Some(group) = self.groups[usize::from(index)].take() {
            if let Some(key) = group.key() {
                self.neighbors.end(key);
            }
            self.note_end((group.number, group.user), &sum, spread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_new_groups_are_great_and_unused() {
        let chosen = |begin, used: &[u16]| great_number(begin, |it| !used.contains(it));
        assert_eq!(chosen(3, &[]), Some(GREAT + 3));
        assert_eq!(chosen(GREAT + 3, &[GREAT + 3, GREAT + 4]), Some(GREAT + 5));
        assert_eq!(
            chosen(u16::MAX, &[u16::MAX, u16::MAX - 1]),
            Some(u16::MAX - 2)
        );
        let great: Vec<u16> = (GREAT..=u16::MAX).collect();
        assert_eq!(chosen(9, &great), Some(GREAT - 1));
        assert_eq!(great_number(9, |_| false), None);
    }
}
