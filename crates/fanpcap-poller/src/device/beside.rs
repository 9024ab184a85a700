//! A device beside the other devices of its poller: what its groups make of the groups of the same
//! user and number there.

use super::Device;
use super::member::{Member, State};
use super::refusals::{APART, NOT_ONE, refused};
use super::together::{Neighbors, Together};
use fanpcap_poll::message::{Hello, Refused};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};

/// How long to wait for a death of which only one group knows yet, nanoseconds. All connections of
/// a process that has died close within this time.
const FIRST_NS: u64 = 100_000_000;

/// How long to wait until the oldest group has found a member that reads the pool of a dead one,
/// nanoseconds from the death on. Busy members answer within this time.
const TAKEOVER_NS: u64 = 500_000_000;

/// The bits of a pair that number the members of a process in a group.
const NUMBERS: u64 = 256;

impl Device {
    /// The device, which has this name, beside the other devices of its poller.
    ///
    /// # Errors
    /// The errors of eventfd(2).
    pub fn beside(self, together: &Together, name: &str) -> io::Result<Self> {
        let neighbors = together.add(name)?;
        Ok(Self { neighbors, ..self })
    }

    /// Readable when another device has changed something ([`Device::tick`]).
    pub(crate) fn news(&self) -> BorrowedFd<'_> {
        self.neighbors.news().as_fd()
    }

    /// Checks that the device has the poller that a handle on several devices needs.
    pub(super) fn check_poller(&self, hello: &Hello) -> Result<(), Refused> {
        match [0, self.neighbors.poller()].contains(&hello.poller) {
            true => Ok(()),
            false => Err(refused("poller-apart", APART)),
        }
    }

    /// Checks that the group of a handle on several devices is one with the group on another
    /// device.
    pub(super) fn check_beside(&self, index: u8, hello: &Hello) -> Result<(), Refused> {
        let group = self.groups[usize::from(index)].as_ref();
        let seen = group.and_then(|it| Some(self.neighbors.look(it.key()?)));
        match hello.poller == 0 || seen.is_some_and(|it| it.has_others) {
            true => Ok(()),
            false => Err(refused("poller-steering", NOT_ONE)),
        }
    }

    /// The pair of a newcomer: the number that its process has sent, and the first number of its
    /// own that no member of the process has in the group. 0 if there is none.
    pub(super) fn pair(&self, index: u8, process: u64) -> u64 {
        let process = process & !(NUMBERS - 1);
        let members = self.members.values().filter(|it| it.group == index);
        let taken: BTreeSet<u64> = members.map(|it| it.pair).collect();
        let mut free = (process..=process | (NUMBERS - 1)).filter(|it| !taken.contains(it));
        free.next().filter(|_| process != 0).unwrap_or_default()
    }

    /// Notes which groups the other devices' news concern, so that they are due.
    pub(crate) fn hear(&mut self) {
        if !self.neighbors.news().clear() {
            return;
        }
        let indices: Vec<u8> = (0..).zip(&self.groups).map(|(index, _)| index).collect();
        for index in indices {
            let has_changed = self.look_around(index);
            if let Some(group) = self.groups[usize::from(index)].as_mut() {
                if has_changed || group.served.is_behind() || group.waits_ns.is_some() {
                    (group.has_news, group.due_ns) = (true, 0);
                }
            }
        }
    }

    /// Looks at the groups beside a group. Returns whether a process hangs there, or no longer
    /// does.
    pub(super) fn look_around(&mut self, index: u8) -> bool {
        let Some(Some(group)) = self.groups.get_mut(usize::from(index)) else {
            return false;
        };
        let Some(key) = group.key() else {
            return false;
        };
        let seen = self.neighbors.look(key);
        group.served.stand_beside(seen.oldest);
        let mut has_changed = false;
        for it in self.members.values_mut().filter(|it| it.group == index) {
            let hangs = seen.hanging.contains(&it.pair);
            has_changed |= hangs != it.hangs_elsewhere;
            it.hangs_elsewhere = hangs;
        }
        has_changed
    }

    /// Whether a process seems to die, of which only this group or the oldest one knows yet, or
    /// whether the oldest group looks for a member that reads its pool. The oldest group gives its
    /// buckets away first, so that this group gives them to the same members. This group moves the
    /// buckets when another member reads the pool of the dead one. If the process lives and has
    /// closed one handle only, the time ends the wait.
    pub(super) fn waits_for_death(&mut self, index: u8, now_ns: u64) -> bool {
        let Some(Some(group)) = self.groups.get_mut(usize::from(index)) else {
            return false;
        };
        let beside = group.served.look_beside();
        let changes = beside.is_none() && group.served.stands_beside();
        let beside = beside.as_ref();
        let wait = |it: &Member| match it.state {
            State::Gone if beside.is_some_and(|oldest| oldest.keeps_share(it.pair)) => {
                Some(it.gone_ns + TAKEOVER_NS)
            }
            State::Gone => {
                let waits = changes || beside.is_some_and(|oldest| oldest.has_share(it.pair));
                waits.then_some(it.gone_ns + FIRST_NS)
            }
            State::Unread | State::Reads => Some(beside?.lost_since(it.pair)? + FIRST_NS),
        };
        let members = self.members.values().filter(|it| it.group == index);
        let until = members.filter_map(wait);
        group.waits_ns = until.filter(|it| *it > now_ns).min();
        group.waits_ns.is_some()
    }

    /// Tells the other devices which members hang here.
    pub(super) fn note_hanging(&mut self, index: u8, now_ns: u64) {
        let group = self.groups[usize::from(index)].as_ref();
        let Some(key) = group.and_then(|it| it.key()) else {
            return;
        };
        let hangs = |it: &&Member| {
            let lives = it.group == index && it.state != State::Gone;
            lives && it.pair != 0 && it.hangs_here(now_ns)
        };
        let hanging = self.members.values().filter(hangs).map(|it| it.pair);
        self.neighbors.note_hanging(key, hanging.collect());
    }

    /// Tells the other devices that a group has changed that decides for them.
    pub(super) fn announce(&mut self, index: u8) {
        let Some(Some(group)) = self.groups.get_mut(usize::from(index)) else {
            return;
        };
        let generation = group.served.generation();
        let is_new = std::mem::replace(&mut group.announced, generation) != generation;
        if let Some(key) = group
            .key()
            .filter(|_| is_new && !group.served.stands_beside())
        {
            self.neighbors.tell_others(key);
        }
    }

    /// What becomes of another weight for a member about which the group on another device decides;
    /// `None` if this device decides. That group's members get their weights first, and the members
    /// here the same ones.
    pub(super) fn weigh_beside(
        &mut self,
        member: u64,
        weight: u16,
        now_ns: u64,
    ) -> Option<Result<(), String>> {
        let (index, pair) = self.members.get(&member).map(|it| (it.group, it.pair))?;
        self.look_around(index);
        self.change(index, now_ns, None, |group, side| {
            let followed = group.follow(side);
            side.settle();
            followed
        });
        let group = self.groups.get(usize::from(index))?.as_ref()?;
        let has = group.served.weight_beside(pair)?;
        let decider = self.neighbors.decider(group.key()?)?;
        let other =
            || format!("the group on {decider} decides the shares: change the member there");
        Some(if has == weight { Ok(()) } else { Err(other()) })
    }
}

impl Neighbors {
    /// The devices beside a device that has none.
    ///
    /// # Errors
    /// The errors of eventfd(2).
    pub(super) fn none() -> io::Result<Self> {
        Together::default().add("")
    }
}
