//! The groups of one receive queue.

use crate::burst::{BURST, Burst, Packet};
use crate::group::{Dismissed, Group, GroupCounts, NewGroup, ReadyGroup, Wants};
use crate::pace::Pace;
use crate::shares::Shares;
use crate::source::{Source, SourceError};
use fanpcap_linux::wait::clock;
use fanpcap_ring::pool::{LaneWriter, PoolCounts};
use fanpcap_steer::native::Evaluator;

/// The most groups of a device.
pub const GROUPS_MAX: usize = 64;

/// A member's place: the group's number on the device, below [`GROUPS_MAX`], and the slot in the
/// group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberSlot {
    /// The group's number.
    pub group: u8,
    /// The member's slot.
    pub slot: u8,
}

/// The groups of one receive queue: each group gets all packets of the queue.
#[derive(Debug)]
pub struct FanOut {
    groups: Vec<Option<Box<Group>>>,
    queue: u16,
    /// Packets that came to the queue.
    packets: u64,
    shares: Shares,
    pace: Pace,
}

impl FanOut {
    /// A queue without groups.
    pub fn new(queue: u16) -> Self {
        Self {
            groups: (0..GROUPS_MAX).map(|_| None).collect(),
            queue,
            packets: 0,
            shares: Shares::default(),
            pace: Pace::default(),
        }
    }

    /// Begins a group without members, as [`NewGroup::ready`] and [`FanOut::install`] together do.
    pub fn begin(&mut self, number: u8, group: NewGroup) -> bool {
        let ready = group.ready();
        ready.is_some_and(|it| self.install(number, it).is_ok())
    }

    /// Begins a group without members.
    ///
    /// # Errors
    /// The group, if the number is not below [`GROUPS_MAX`], or if another group has it.
    pub fn install(&mut self, number: u8, group: ReadyGroup) -> Result<(), ReadyGroup> {
        let queue = self.queue;
        let place = self.groups.get_mut(usize::from(number));
        let Some(place) = place.filter(|place| place.is_none()) else {
            return Err(group);
        };
        let group = place.insert(group.0);
        group.queue = queue;
        self.shares.begin(group.user);
        Ok(())
    }

    /// Ends a group.
    pub fn end(&mut self, number: u8) -> Option<ReadyGroup> {
        let group = self.groups.get_mut(usize::from(number))?.take()?;
        self.shares.end(group.user);
        Some(ReadyGroup(group))
    }

    /// Directs a slot's packets into a pool from now on. Returns the slot's former pool.
    ///
    /// # Errors
    /// The writer, if there is no such group.
    pub fn admit(
        &mut self,
        at: MemberSlot,
        writer: LaneWriter,
        wants: Wants,
    ) -> Result<Option<Dismissed>, LaneWriter> {
        let group = self.groups.get_mut(usize::from(at.group));
        let Some(group) = group.and_then(Option::as_mut) else {
            return Err(writer);
        };
        self.shares.change(group.user);
        Ok(group.admit(at.slot, writer, wants))
    }

    /// Removes a slot's pool. When this function returns, no more packets come into the pool.
    /// `None` if the slot has no pool.
    pub fn dismiss(&mut self, at: MemberSlot) -> Option<Dismissed> {
        self.group_mut(at.group)?.dismiss(at.slot)
    }

    /// Gives a group no more packets, until a member is admitted.
    pub fn stop(&mut self, number: u8) {
        if let Some(group) = self.group_mut(number) {
            group.is_stopped = true;
        }
    }

    /// Gives a stopped group packets again.
    pub fn start(&mut self, number: u8) {
        let group = self.groups.get_mut(usize::from(number));
        if let Some(group) = group.and_then(Option::as_mut) {
            self.shares.change(group.user);
            group.is_stopped = false;
        }
    }

    /// Shows the members what the queue's source has dropped since they came, and for which packets
    /// of their group the thread had no time. No member got these packets, so the number is the
    /// same for all members of a group that came at the same time. `missed` is the count of the
    /// source.
    pub fn note_missed(&mut self, missed: u64) {
        for group in self.groups.iter_mut().flatten() {
            group.note_missed(missed);
        }
    }

    /// The counts of a slot's pool in this queue.
    pub fn counts_of(&self, at: MemberSlot) -> Option<PoolCounts> {
        self.group(at.group)?.counts_of(at.slot)
    }

    /// The counts of a group in this queue.
    pub fn counts(&self, number: u8) -> Option<GroupCounts> {
        self.group(number).map(Group::counts)
    }

    /// The counts of the pools of a group's slots in this queue.
    pub fn slot_counts(&self, number: u8) -> Vec<(u8, PoolCounts)> {
        let of = |group: &Group| {
            let counts = (0..=u8::MAX).map(|slot| (slot, group.counts_of(slot)));
            counts
                .filter_map(|(slot, counts)| Some((slot, counts?)))
                .collect()
        };
        self.group(number).map(of).unwrap_or_default()
    }

    /// Packets that came to the queue, whether or not it had groups.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The sum of the counts of all groups in this queue.
    pub fn all_counts(&self) -> GroupCounts {
        let mut sum = GroupCounts::default();
        for group in self.groups.iter().flatten() {
            sum.add_all(&group.counts());
        }
        sum
    }

    /// The group's steering program in this queue, with its counters.
    pub fn steering(&self, number: u8) -> Option<&Evaluator> {
        self.group(number).map(Group::steering)
    }

    /// Takes a burst from a source, and writes its packets into pools. Calls `wake` for each slot
    /// whose reader waits, once. `now_ns` is the time in nanoseconds of `CLOCK_MONOTONIC`. Returns
    /// the number of packets.
    ///
    /// # Errors
    /// The error of [`Source::burst`]. The packets that came before it are written.
    pub fn poll(
        &mut self,
        source: &mut dyn Source,
        now_ns: u64,
        wake: &mut dyn FnMut(MemberSlot),
    ) -> Result<usize, SourceError> {
        let (most, pace) = match self.shares.are_shared() {
            true => {
                let has_filled = |quarters| source.has_filled(quarters);
                let pace = self.pace.look(has_filled, clock::thread_cpu_ns);
                (self.shares.burst(), pace)
            }
            false => (BURST, Pace::KeepsUp),
        };
        self.pace = pace;
        let mut burst = Burst::of(most);
        let result = source.burst(&mut burst);
        let len = burst.packets().len();
        self.spread(burst.packets(), now_ns, wake);
        source.release();
        result.map(|()| len)
    }

    /// Lets all groups take the packets. If the thread is too slow, those of the users that take
    /// most time leave them out.
    fn spread(&mut self, packets: &[Packet<'_>], now_ns: u64, wake: &mut dyn FnMut(MemberSlot)) {
        if packets.is_empty() {
            return;
        }
        self.packets += packets.len() as u64;
        let is_shared = self.shares.are_shared();
        // Not the time of day: the thread may lose its CPU.
        let cpu_ns = || if is_shared { clock::thread_cpu_ns() } else { 0 };
        if is_shared {
            self.shares.begin_burst(now_ns);
        }
        let begin_ns = cpu_ns();
        let mut before_ns = begin_ns;
        for (number, group) in (0..).zip(&mut self.groups) {
            let Some(group) = group else {
                continue;
            };
            if group.is_stopped {
                group.pass_by(packets.len());
                continue;
            }
            if self.pace == Pace::IsLate && self.shares.takes_most(group.user) {
                group.skip(packets.len());
                continue;
            }
            for packet in packets {
                group.take(packet, now_ns);
            }
            group.publish(|slot| {
                wake(MemberSlot {
                    group: number,
                    slot,
                })
            });
            if is_shared {
                let now_ns = cpu_ns();
                self.shares.add(group.user, now_ns - before_ns);
                before_ns = now_ns;
            }
        }
        if is_shared {
            let took_ns = before_ns - begin_ns;
            self.shares.end_burst(took_ns, packets.len());
        }
    }

    fn group(&self, number: u8) -> Option<&Group> {
        self.groups.get(usize::from(number))?.as_deref()
    }

    fn group_mut(&mut self, number: u8) -> Option<&mut Group> {
        self.groups.get_mut(usize::from(number))?.as_deref_mut()
    }
}
