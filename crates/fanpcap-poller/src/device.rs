//! A device that a poller serves: its queues, its groups, and its members. One thread changes all
//! of them, and reads no clock: the caller passes the time.

mod steering;
mod member;

use crate::fan_out::GROUPS_MAX;
use crate::flows::FLOW_LEN;
use crate::group::{GroupCounts, NewGroup};
use crate::queue::Queue;
use fanpcap_buckets::layout::SIZE_WITH_CLASSES;
use fanpcap_group::served::{Joining, Members, Orphan, ServedGroup};
use fanpcap_group::view::View;
use fanpcap_linux::file::sealed;
use fanpcap_linux::unix;
use fanpcap_poll::message::{Hello, Refused, Takeover, Welcome};
use fanpcap_poll::{PoolFile, PoolSize};
use fanpcap_steer::native::Evaluator;
use member::{Admission, Member, Side};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use steering::Compiled;

/// The most bytes of all pools, tables and remembered flows of a device together.
const MEMORY_MAX: u64 = 8 << 30;

/// Bytes of a block, and of a pool if the member asks for no size.
const BLOCK_LEN: u32 = 1 << 20;
const POOL_LEN: u32 = 64 << 20;

/// A device that this process polls.
#[derive(Debug)]
pub struct Device {
    queues: Vec<Queue>,
    ifindex: u32,
    hardware: u16,
    /// The groups, by their numbers in the queues.
    groups: Vec<Option<Group>>,
    members: BTreeMap<u64, Member>,
    /// The number of the last member.
    last: u64,
}

#[derive(Debug)]
struct Group {
    /// The group's number for members; `None` for the group of one handle.
    number: Option<u16>,
    digest: u64,
    served: ServedGroup,
    /// When the group's members were last looked after.
    attended_ns: u64,
    /// Bytes of the table, and of the flows that the queues remember.
    bytes: u64,
}

/// A newcomer that has become a member.
#[derive(Debug)]
pub struct Entered {
    /// The member's number.
    pub member: u64,
    /// The answer.
    pub welcome: Welcome,
    /// The descriptors that the answer carries: of the pool, and the member's end of the bell.
    pub descriptors: [OwnedFd; 2],
}

/// A message to a member: it shall read the pool of a member that is gone.
#[derive(Debug)]
pub struct Notice {
    /// The member that gets the message.
    pub to: u64,
    /// The message.
    pub takeover: Takeover,
    /// The descriptor that the message carries.
    pub pool: OwnedFd,
}

impl Device {
    /// The device with these queues, of which queue `n` is the lane `n` of each pool. `ifindex` and
    /// `hardware` are the device's index and its hardware type (`ARPHRD_*`, linux/if_arp.h).
    pub fn new(queues: Vec<Queue>, ifindex: u32, hardware: u16) -> Self {
        Self {
            queues,
            ifindex,
            hardware,
            groups: (0..GROUPS_MAX).map(|_| None).collect(),
            members: BTreeMap::new(),
            last: 0,
        }
    }

    /// Makes a newcomer, whose process has the id `pid`, a member of its group. The first member
    /// begins the group.
    ///
    /// # Errors
    /// The answer to the newcomer.
    pub fn enter(&mut self, hello: &Hello, pid: u32, now_ns: u64) -> Result<Entered, Refused> {
        let (index, is_new) = match self.find(hello.group) {
            Some(index) => {
                self.check(index, hello)?;
                (index, false)
            }
            None => (self.begin(hello, now_ns)?, true),
        };
        let entered = self.join(index, hello, pid, now_ns);
        if is_new && entered.is_err() {
            self.end(index);
        }
        entered
    }

    fn find(&self, number: Option<u16>) -> Option<u8> {
        let number = number?;
        let mut groups = (0..).zip(&self.groups);
        groups.find_map(|(index, group)| {
            let is_it = group.as_ref().is_some_and(|it| it.number == Some(number));
            is_it.then_some(index)
        })
    }

    /// Checks that the newcomer's steering program is the group's.
    fn check(&self, index: u8, hello: &Hello) -> Result<(), Refused> {
        let asked = steering::compile(&hello.steering)?;
        let group = self.groups[usize::from(index)].as_ref();
        match asked.is_none_or(|it| group.is_some_and(|group| group.digest == it.digest)) {
            true => Ok(()),
            false => Err(refused("poller-steering", OTHER_STEERING)),
        }
    }

    /// Begins a group in all queues.
    fn begin(&mut self, hello: &Hello, now_ns: u64) -> Result<u8, Refused> {
        let compiled = steering::compile(&hello.steering)?;
        let Compiled {
            tree,
            digest,
            options,
        } = compiled.map_or_else(steering::default, Ok)?;
        let free = (0..).zip(&self.groups).find(|(_, group)| group.is_none());
        let (index, _) = free.ok_or_else(|| refused("poller-groups", MANY_GROUPS))?;
        let flows = u64::from(options.flows.unwrap_or_default()) * self.queues.len() as u64;
        let bytes = SIZE_WITH_CLASSES as u64 + flows * FLOW_LEN;
        self.check_memory(bytes)?;
        let len = u32::try_from(SIZE_WITH_CLASSES).unwrap_or(u32::MAX);
        let table = sealed::create_memory(c"fanpcap_table", len);
        let table = Arc::new(table.map_err(|error| failed(&error))?);
        let number = hello.group.unwrap_or_default();
        let memory = Arc::clone(&table);
        let served = ServedGroup::begin(memory, self.ifindex, number, options.balance, now_ns);
        let served = served.ok_or_else(|| refused("poller-failed", "no table"))?;
        let group = NewGroup {
            steering: Evaluator::of_group(&tree),
            table,
            options,
        };
        for queue in &self.queues {
            let group = group.for_other_queue();
            let begun = queue.change(move |queue| queue.fan_out.begin(index, group));
            begun.ok_or_else(|| refused("poller-failed", NO_QUEUE))?;
        }
        self.groups[usize::from(index)] = Some(Group {
            number: hello.group,
            digest,
            served,
            attended_ns: now_ns,
            bytes,
        });
        Ok(index)
    }

    fn join(
        &mut self,
        index: u8,
        hello: &Hello,
        pid: u32,
        now_ns: u64,
    ) -> Result<Entered, Refused> {
        let size = self.size(hello.memory);
        self.check_memory(size.file_len().unwrap_or(u32::MAX).into())?;
        let made = PoolFile::create(size).and_then(|made| Ok((made, unix::pair()?)));
        let ((pool, lanes), [bell, members_end]) = made.map_err(|error| failed(&error))?;
        let descriptor = pool.as_fd().try_clone_to_owned();
        let descriptor = descriptor.map_err(|error| failed(&error))?;
        self.last += 1;
        let member = self.last;
        let joining = Joining {
            member,
            pid,
            weight: hello.weight,
            class: hello.class,
            name: hello.name.as_deref(),
        };
        let new = Member::new(pool, size, index).map_err(|error| failed(&error))?;
        self.members.insert(member, new);
        let admission = Admission::of(hello, lanes, bell);
        let slot = self.change(index, now_ns, Some(admission), |group, side| {
            group.join(&joining, side)
        });
        let Some(Ok(Some(slot))) = slot else {
            self.members.remove(&member);
            return Err(refused("poller-full", FULL));
        };
        let welcome = Welcome {
            pool: size,
            slot,
            ifindex: self.ifindex,
            hardware: self.hardware,
        };
        Ok(Entered {
            member,
            welcome,
            descriptors: [descriptor, members_end],
        })
    }

    /// Checks that so many bytes more may be taken.
    fn check_memory(&self, bytes: u64) -> Result<(), Refused> {
        let pools: u64 = self.members.values().map(Member::len).sum();
        let groups: u64 = self.groups.iter().flatten().map(|group| group.bytes).sum();
        match pools + groups + bytes <= MEMORY_MAX {
            true => Ok(()),
            false => Err(refused("poller-memory", NO_MEMORY)),
        }
    }

    /// The size of a pool for a member that asks for so many bytes: two blocks or more for each
    /// queue.
    fn size(&self, bytes: Option<u32>) -> PoolSize {
        let lanes = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
        let blocks = bytes.unwrap_or(POOL_LEN) / BLOCK_LEN;
        PoolSize {
            lanes,
            block_len: BLOCK_LEN,
            // The words take one block.
            blocks: blocks.saturating_sub(1).clamp((2 * lanes).max(3), 255),
        }
    }

    /// The member's application looks for packets for the first time.
    pub fn reads(&mut self, member: u64, now_ns: u64) -> Vec<Notice> {
        let Some(it) = self.members.get_mut(&member) else {
            return Vec::new();
        };
        it.reads = true;
        let index = it.group;
        self.attend(index, now_ns)
    }

    /// A member has read the pool of the member `gone` to its end.
    pub fn read_out(&mut self, member: u64, gone: u64, now_ns: u64) -> Vec<Notice> {
        let index = self.members.get(&member).map(|it| it.group);
        let of_gone = self.members.get(&gone);
        let it = of_gone.filter(|it| it.taker == Some(member) && Some(it.group) == index);
        let Some((index, counters)) = it.map(|it| (it.group, it.final_counters())) else {
            // A member may say so of any member.
            return Vec::new();
        };
        self.change(index, now_ns, None, |group, side| {
            group.vacate(gone, &counters, side)
        });
        self.members.remove(&gone);
        self.attend(index, now_ns)
    }

    /// The member's application has closed its handle. Its connection is about to close.
    pub fn departs(&mut self, member: u64, now_ns: u64) {
        if let Some(index) = self.members.get(&member).map(|it| it.group) {
            self.change(index, now_ns, None, |group, side| {
                group.depart(member, side)
            });
        }
    }

    /// A member's connection has closed.
    pub fn hang_up(&mut self, member: u64, now_ns: u64) -> Vec<Notice> {
        let Some(it) = self.members.get_mut(&member) else {
            return Vec::new();
        };
        it.is_connected = false;
        let index = it.group;
        // Who has taken over this member's pools may be gone, too.
        for it in self.members.values_mut() {
            it.taker = it.taker.filter(|taker| *taker != member);
        }
        self.attend(index, now_ns)
    }

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
        let due = |member| group.served.due_ns(member, now_ns);
        let readers = self.readers(index);
        if readers.is_empty() {
            // The group may only wait for a successor.
            let since_ns = now_ns.saturating_sub(group.attended_ns);
            return Some(MEMBERLESS_NS.saturating_sub(since_ns));
        }
        readers.into_iter().filter_map(due).min()
    }

    fn readers(&self, index: u8) -> Vec<u64> {
        let members = self.members.iter().filter(|(_, it)| it.group == index);
        let readers = members.filter(|(_, it)| it.is_connected && it.reads);
        readers.map(|(member, _)| *member).collect()
    }

    /// Lets all members of a group that read do their part. Ends the group if it has no member.
    fn attend(&mut self, index: u8, now_ns: u64) -> Vec<Notice> {
        let mut notices = Vec::new();
        if let Some(Some(group)) = self.groups.get_mut(usize::from(index)) {
            group.attended_ns = now_ns;
        }
        for member in self.readers(index) {
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
            pool: gone.pool.as_fd().try_clone_to_owned().ok()?,
        })
    }

    /// Ends a group without members. Packets in their pools are unread.
    fn end(&mut self, index: u8) {
        self.groups[usize::from(index)] = None;
        self.members.retain(|_, it| it.group != index);
        for queue in &self.queues {
            queue.change(move |queue| queue.fan_out.end(index));
        }
    }

    fn change<T>(
        &mut self,
        index: u8,
        now_ns: u64,
        admission: Option<Admission>,
        change: impl FnOnce(&ServedGroup, &mut dyn Members) -> T,
    ) -> Option<T> {
        let group = self.groups.get(usize::from(index))?.as_ref()?;
        let mut side = Side {
            queues: &self.queues,
            members: &mut self.members,
            index,
            admission,
            now_ns,
        };
        Some(change(&group.served, &mut side))
    }

    /// The members of a group, and the group's counts in all queues. `None` if there is no such
    /// group.
    pub fn look(&self, number: Option<u16>) -> Option<(View, GroupCounts)> {
        let index = self.find(number)?;
        let group = self.groups.get(usize::from(index))?.as_ref()?;
        let mut sum = GroupCounts::default();
        for queue in &self.queues {
            sum.add_all(&queue.change(move |queue| queue.fan_out.counts(index))??);
        }
        Some((group.served.look(), sum))
    }

    /// The number of groups, and of members, those included whose pools are still read.
    pub fn sizes(&self) -> [usize; 2] {
        let groups = self.groups.iter().flatten().count();
        [groups, self.members.len()]
    }
}

/// How soon to look again whether a group in which no member reads has a member, nanoseconds.
const MEMBERLESS_NS: u64 = 500_000_000;

const OTHER_STEERING: &str = "the group has another steering program or mode: leave the mode out, \
                              or choose another group";
const MANY_GROUPS: &str = "the poller's device has as many groups as it can have";
const NO_MEMORY: &str = "the poller's members and groups take all memory that they may take: ask for a \
                         smaller buffer";
const FULL: &str = "the group has as many members as it can have";
const NO_QUEUE: &str = "a queue of the poller's device has ended";

fn refused(slug: &str, text: &str) -> Refused {
    Refused {
        slug: slug.to_owned(),
        text: text.to_owned(),
    }
}

fn failed(error: &io::Error) -> Refused {
    refused(
        "poller-failed",
        &format!("the poller can't make a pool: {error}"),
    )
}
