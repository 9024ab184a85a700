//! A group, as one receive queue's thread has it: decides which members get each packet, and writes
//! the packet into their pools.

use crate::burst::Packet;
use crate::filter::DeviceFilter;
use crate::flows::Flows;
use crate::table::{Part, Table};
use fanpcap_buckets::layout::SLOTS;
use fanpcap_linux::memory::Memory;
use fanpcap_ring::Vlan;
use fanpcap_ring::pool::{LaneWriter, NewRecord, PoolCounts};
use fanpcap_steer::GroupOptions;
use fanpcap_steer::native::{self, Decision, Evaluator, plain};
use std::sync::Arc;

/// A group for one queue's thread.
#[derive(Debug)]
pub struct NewGroup {
    /// The group's steering program. Each queue's thread has its own evaluator, and all of them
    /// share the fragments.
    pub steering: Evaluator,
    /// The group's table.
    pub table: Arc<Memory>,
    /// How many flows each queue's thread remembers (`+sticky`), and whether the table counts the
    /// packets of each bucket (`+balance`).
    pub options: GroupOptions,
    /// The user for whom the group counts.
    pub user: u32,
    /// Which packets the group's members may have; `None`: all.
    pub filter: Option<DeviceFilter>,
}

impl NewGroup {
    /// Takes the memory that a queue needs for the group. `None` if the table's memory is no table.
    pub fn ready(self) -> Option<ReadyGroup> {
        Group::new(self).map(|group| ReadyGroup(Box::new(group)))
    }

    /// The same group for another queue's thread.
    pub fn for_other_queue(&self) -> Self {
        Self {
            steering: self.steering.for_other_thread(),
            table: Arc::clone(&self.table),
            options: self.options,
            user: self.user,
            filter: self.filter.clone(),
        }
    }
}

/// What a member wants of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wants {
    /// Bytes of each packet to keep.
    pub snaplen: u32,
    /// Whether the member wants packets that the host sends.
    pub sent: bool,
}

/// Counts of a group in one queue. Deliveries are counted by their ends: `offered` and `again` are
/// together as many as all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Packets that came to the group.
    pub offered: u64,
    /// Deliveries of a packet after its first delivery, if the packet goes to several members.
    pub again: u64,
    /// Packets for which the queue's thread had no time, because the groups of this user take the
    /// most time.
    pub no_time: u64,
    /// Packets that the steering program dropped.
    pub nowhere: u64,
    /// Deliveries for which there was no member.
    pub no_member: u64,
    /// Packets that came while the group was stopped.
    pub stopped: u64,
    /// Records in the pools of members, those included that are gone.
    pub produced: u64,
    /// Deliveries for which a member's pool had no room.
    pub dropped: u64,
    /// Deliveries of packets that the host sends, to members that do not want them.
    pub unwanted: u64,
    /// Packets that the policy's filter has left out.
    pub not_allowed: u64,
}

/// A group as a queue has it, outside of the queue: to make one, or to free its memory, takes
/// milliseconds, which the queue's thread does not have.
#[derive(Debug)]
pub struct ReadyGroup(pub(crate) Box<Group>);

impl ReadyGroup {
    /// The group's counts.
    pub fn counts(&self) -> GroupCounts {
        self.0.counts()
    }
}

/// A slot's former pool. To drop it may unmap the pool, which takes milliseconds.
#[derive(Debug)]
pub struct Dismissed(LaneWriter);

impl Dismissed {
    /// The pool's final counts in the queue.
    pub fn counts(&self) -> PoolCounts {
        self.0.counts()
    }
}

#[derive(Debug)]
pub(crate) struct Group {
    filter: Option<DeviceFilter>,
    steering: Evaluator,
    /// Whether plain packets take the straight path of the mode `flow`.
    is_flow: bool,
    table: Table,
    is_balanced: bool,
    flows: Option<Flows>,
    members: Box<[Option<Member>]>,
    /// A bit for each slot whose pool has records that are not published.
    touched: [u64; SLOTS / 64],
    /// The counts, without those of present members.
    counts: GroupCounts,
    pub(crate) queue: u16,
    pub(crate) user: u32,
    /// Whether the group takes no packets until a member is admitted.
    pub(crate) is_stopped: bool,
}

#[derive(Debug)]
struct Member {
    writer: LaneWriter,
    wants: Wants,
    /// What the queue's source had dropped when the member came, and what the group had left out.
    missed_before: Option<u64>,
}

impl Group {
    /// `None` if the table's memory is no table.
    fn new(group: NewGroup) -> Option<Self> {
        Some(Self {
            filter: group.filter,
            is_flow: fanpcap_steer::is_of_mode(group.steering.program(), "flow"),
            steering: group.steering,
            table: Table::new(group.table)?,
            is_balanced: group.options.balance.is_some(),
            flows: group.options.flows.map(Flows::new),
            members: (0..SLOTS).map(|_| None).collect(),
            touched: [0; SLOTS / 64],
            counts: GroupCounts::default(),
            queue: 0,
            user: group.user,
            is_stopped: false,
        })
    }

    /// Directs a slot's packets into a pool. Returns the slot's former pool.
    pub(crate) fn admit(
        &mut self,
        slot: u8,
        writer: LaneWriter,
        wants: Wants,
    ) -> Option<Dismissed> {
        let former = self.dismiss(slot);
        self.is_stopped = false;
        self.members[usize::from(slot)] = Some(Member {
            writer,
            wants,
            missed_before: None,
        });
        former
    }

    /// Removes a slot's pool. All its records are published.
    pub(crate) fn dismiss(&mut self, slot: u8) -> Option<Dismissed> {
        let mut member = self.members[usize::from(slot)].take()?;
        member.writer.publish();
        self.counts.add(member.writer.counts());
        Some(Dismissed(member.writer))
    }

    /// Shows all members what the queue's source has dropped since they came, and for which packets
    /// of the group the thread had no time. `missed` is the source's count. The first call after a
    /// member came is the beginning for this member.
    pub(crate) fn note_missed(&mut self, missed: u64) {
        let missed = missed.saturating_add(self.counts.no_time);
        for member in self.members.iter_mut().flatten() {
            let before = *member.missed_before.get_or_insert(missed);
            member.writer.note_missed(missed.saturating_sub(before));
        }
    }

    /// The counts of a slot's pool.
    pub(crate) fn counts_of(&self, slot: u8) -> Option<PoolCounts> {
        let member = self.members[usize::from(slot)].as_ref()?;
        Some(member.writer.counts())
    }

    pub(crate) fn counts(&self) -> GroupCounts {
        let mut counts = self.counts;
        for member in self.members.iter().flatten() {
            counts.add(member.writer.counts());
        }
        counts
    }

    pub(crate) fn steering(&self) -> &Evaluator {
        &self.steering
    }

    /// Leaves out packets.
    pub(crate) fn skip(&mut self, packets: usize) {
        self.counts.offered += packets as u64;
        self.counts.no_time += packets as u64;
    }

    /// Counts packets that come while the group is stopped.
    pub(crate) fn pass_by(&mut self, packets: usize) {
        self.counts.offered += packets as u64;
        self.counts.stopped += packets as u64;
    }

    /// Writes a packet into the pools of the members that get it. The policy's filter comes first,
    /// so that nothing else of the group depends on packets that its user may not have: neither the
    /// counters of the steering program, nor the loads of buckets, nor remembered flows.
    #[inline]
    pub(crate) fn take(&mut self, packet: &Packet<'_>, now_ns: u64) {
        self.counts.offered += 1;
        let bytes = match &self.filter {
            None => Some(packet.frame.bytes),
            Some(filter) => filter.allowed(packet),
        };
        let Some(bytes) = bytes else {
            self.counts.not_allowed += 1;
            return;
        };
        let record = self.record((packet, bytes), now_ns);
        let straight = || plain::flow_hash(packet.frame.bytes);
        if let Some(hash) = Some(()).filter(|()| self.is_flow).and_then(|()| straight()) {
            return self.steer(0, hash, &record);
        }
        let outcome = self.steering.evaluate(&native::Packet {
            frame: packet.frame,
            length: packet.wire_len,
            hash: packet.hash,
            queue: Some(self.queue.into()),
            cpu: self.queue.into(),
            mark: None,
            now_ns,
        });
        let class = outcome.class;
        match outcome.decision {
            Decision::Drop => self.counts.nowhere += 1,
            Decision::Steer(hash) => self.steer(class, hash, &record),
            Decision::Member(number) => {
                let part = self.table.class(class);
                let slot = part.and_then(|part| part.of_number(number));
                self.deliver(slot, &record);
            }
            Decision::Double(one, other) => {
                if self.is_balanced {
                    self.table.count_load(one);
                    self.table.count_load(other);
                }
                let part = self.table.class(class);
                let slots = [one, other].map(|hash| part.and_then(|part| part.of_hash(hash)));
                self.deliver_to_both(slots, record);
            }
            Decision::Copy => self.deliver_to_all(class, &record),
            Decision::Broadcast => {
                let slots = Slots::of(self.table.everybody());
                self.deliver_to_slots(slots, record);
            }
        }
    }

    #[inline]
    fn steer(&mut self, class: u8, hash: u32, record: &NewRecord<'_>) {
        if self.is_balanced {
            self.table.count_load(hash);
        }
        let part = self.table.class(class);
        let slot = part.and_then(|part| match &mut self.flows {
            None => part.of_hash(hash),
            Some(flows) => flows.slot(&self.table, (class, part), hash),
        });
        self.deliver(slot, record);
    }

    fn deliver_to_all(&mut self, class: u8, record: &NewRecord<'_>) {
        let slots = Slots::of(self.table.class(class));
        self.deliver_to_slots(slots, *record);
    }

    fn deliver_to_both(&mut self, [one, other]: [Option<u8>; 2], mut record: NewRecord<'_>) {
        record.is_copy = one != other;
        self.deliver(one, &record);
        if one != other {
            self.counts.again += 1;
            self.deliver(other, &record);
        }
    }

    fn deliver_to_slots(&mut self, slots: Slots, mut record: NewRecord<'_>) {
        let Slots { slots, len } = slots;
        if len == 0 {
            return self.deliver(None, &record);
        }
        record.is_copy = len > 1;
        for (index, slot) in slots.into_iter().take(len).enumerate() {
            self.counts.again += u64::from(index > 0);
            self.deliver(Some(slot), &record);
        }
    }

    #[inline]
    fn deliver(&mut self, slot: Option<u8>, record: &NewRecord<'_>) {
        let Some((slot, Some(member))) = slot.map(|slot| {
            let slot = usize::from(slot);
            (slot, &mut self.members[slot])
        }) else {
            self.counts.no_member += 1;
            return;
        };
        if record.is_sent && !member.wants.sent {
            self.counts.unwanted += 1;
            return;
        }
        self.touched[slot / 64] |= 1 << (slot % 64);
        member.writer.put(record, member.wants.snaplen);
    }

    fn record<'a>(&self, (packet, bytes): (&Packet<'a>, &'a [u8]), now_ns: u64) -> NewRecord<'a> {
        NewRecord {
            bytes,
            tag: packet.tag().map(|tag| Vlan {
                tpid: tag.tpid,
                tci: tag.tci,
            }),
            wire_len: packet.wire_len,
            stamp_ns: packet.stamp_ns.unwrap_or(now_ns),
            queue: self.queue,
            is_sent: packet.is_sent,
            is_copy: false,
            filter: 0,
        }
    }

    /// Shows the records to the members. Calls `wake` with the slots whose readers wait.
    pub(crate) fn publish(&mut self, mut wake: impl FnMut(u8)) {
        for (slots, first) in self.touched.iter_mut().zip((0..).step_by(64)) {
            while *slots != 0 {
                let slot: usize = first + slots.trailing_zeros() as usize;
                *slots &= *slots - 1;
                let member = self.members.get_mut(slot).and_then(Option::as_mut);
                if member.is_some_and(|member| member.writer.publish()) {
                    wake(slot.to_le_bytes()[0]);
                }
            }
        }
    }
}

/// The slots of all members that get a packet, read once: the table may change meanwhile.
struct Slots {
    slots: [u8; SLOTS],
    len: usize,
}

impl Slots {
    fn of(part: Option<Part<'_>>) -> Self {
        let mut slots = [0; SLOTS];
        let all = part.into_iter().flat_map(Part::slots);
        let mut len = 0;
        for (place, slot) in slots.iter_mut().zip(all) {
            *place = slot;
            len += 1;
        }
        Self { slots, len }
    }
}

impl GroupCounts {
    /// Adds the counts of another queue or group.
    pub fn add_all(&mut self, other: &Self) {
        self.offered += other.offered;
        self.again += other.again;
        self.no_time += other.no_time;
        self.nowhere += other.nowhere;
        self.no_member += other.no_member;
        self.stopped += other.stopped;
        self.produced += other.produced;
        self.dropped += other.dropped;
        self.unwanted += other.unwanted;
        self.not_allowed += other.not_allowed;
    }

    fn add(&mut self, counts: PoolCounts) {
        self.produced += counts.produced;
        self.dropped += counts.dropped;
    }
}
