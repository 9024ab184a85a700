//! What a group must do with packets: the evaluator decides, and a copy of the group's table says
//! which slots that means.

use fanpcap_buckets::layout::{
    EVERYBODY, HOLDERS, OWNERS, RANK_COUNT, RANKS, STICKY_IDS, bucket, part,
};
use fanpcap_poller::{GroupCounts, Packet, Wants};
use fanpcap_steer::GroupOptions;
use fanpcap_steer::native::{self, Decision, Evaluator, Outcome};
use std::collections::{BTreeMap, HashMap};

/// A packet in a member's pool.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    pub bytes: Vec<u8>,
    pub wire_len: u32,
    pub stamp_ns: u64,
    pub flags: u16,
}

// fanpcap-ring, frame.rs: the flags of a record.
const OUTGOING: u16 = 1;
const TAGGED: u16 = 2;
const COPY: u16 = 4;

/// Bytes of a frame before its first tag.
const ADDRESSES_LEN: usize = 12;

/// A group with its members, on all queues.
pub struct Model {
    /// The bytes of the group's table.
    pub table: Vec<u8>,
    pub has_classes: bool,
    pub options: GroupOptions,
    pub members: BTreeMap<u8, Wants>,
    /// The packets of each bucket, if the group is balanced.
    pub loads: Vec<u32>,
    pub queues: Vec<OnQueue>,
}

/// The part of a group that a queue's thread has.
pub struct OnQueue {
    pub evaluator: Evaluator,
    pub counts: GroupCounts,
    /// The sticky ids of the members that last got the flows of a class.
    flows: HashMap<(u8, u32), u64>,
}

impl OnQueue {
    pub fn new(evaluator: Evaluator) -> Self {
        Self {
            evaluator,
            counts: GroupCounts::default(),
            flows: HashMap::new(),
        }
    }
}

impl Model {
    /// The records of a packet that comes to a queue, with the slots of their pools.
    pub fn take(&mut self, queue: u16, packet: &Packet<'_>, now_ns: u64) -> Vec<(u8, Record)> {
        let at = usize::from(queue);
        let outcome = self.queues[at].evaluator.evaluate(&native::Packet {
            frame: packet.frame,
            length: packet.wire_len,
            hash: packet.hash,
            queue: Some(queue.into()),
            cpu: queue.into(),
            mark: None,
            now_ns,
        });
        self.queues[at].counts.offered += 1;
        if outcome.decision == Decision::Drop {
            self.queues[at].counts.nowhere += 1;
            return Vec::new();
        }
        let slots = self.slots(at, outcome);
        let counts = &mut self.queues[at].counts;
        counts.again += slots.len().saturating_sub(1) as u64;
        counts.no_member += u64::from(slots.is_empty());
        let mut records = Vec::new();
        for &slot in &slots {
            match self.members.get(&slot) {
                None => counts.no_member += 1,
                Some(wants) if packet.is_sent && !wants.sent => counts.unwanted += 1,
                Some(wants) => {
                    counts.produced += 1;
                    let record = record(packet, (now_ns, slots.len() > 1), *wants);
                    records.push((slot, record));
                }
            }
        }
        records
    }

    /// The slots that get a packet that is not dropped, whether or not they have members.
    fn slots(&mut self, queue: usize, outcome: Outcome) -> Vec<u8> {
        let hashes = match outcome.decision {
            Decision::Steer(hash) => vec![hash],
            Decision::Double(one, other) => vec![one, other],
            Decision::Drop | Decision::Copy | Decision::Member(_) | Decision::Broadcast => {
                Vec::new()
            }
        };
        if self.options.balance.is_some() {
            hashes
                .into_iter()
                .for_each(|hash| self.loads[bucket(hash)] += 1);
        }
        let class = match outcome.decision {
            Decision::Broadcast if self.has_classes => EVERYBODY,
            Decision::Broadcast => 0,
            Decision::Drop
            | Decision::Copy
            | Decision::Steer(_)
            | Decision::Member(_)
            | Decision::Double(..) => usize::from(outcome.class),
        };
        // The table of a group without classes has only the default class.
        if class != 0 && !self.has_classes {
            return Vec::new();
        }
        let ranks = self.ranks(class);
        if ranks.is_empty() {
            return Vec::new();
        }
        let owner = |hash: u32| self.table[part(class) + OWNERS + bucket(hash)];
        match outcome.decision {
            Decision::Drop => Vec::new(),
            Decision::Copy | Decision::Broadcast => ranks,
            Decision::Member(number) => vec![ranks[number as usize % ranks.len()]],
            Decision::Double(one, other) if owner(one) == owner(other) => vec![owner(one)],
            Decision::Double(one, other) => vec![owner(one), owner(other)],
            Decision::Steer(hash) => {
                let by_table = owner(hash);
                vec![self.stuck(queue, (outcome.class, hash), by_table)]
            }
        }
    }

    fn ranks(&self, class: usize) -> Vec<u8> {
        let part = &self.table[part(class)..];
        let count = part[RANK_COUNT..].first_chunk().unwrap();
        let count = u32::from_ne_bytes(*count) as usize;
        part[RANKS..RANKS + count].to_vec()
    }

    /// The slot of a flow: in a sticky group that of the member that has had the flow, if it has a
    /// slot.
    fn stuck(&mut self, queue: usize, flow: (u8, u32), by_table: u8) -> u8 {
        if self.options.flows.is_none() {
            return by_table;
        }
        let (sticky_id, holder) = {
            let word = |at: usize| u64::from_ne_bytes(*self.table[at..].first_chunk().unwrap());
            let had = self.queues[queue].flows.get(&flow);
            let number = |id: u64| usize::from(id.to_le_bytes()[0]);
            let holder = had.map(|&had| (had, word(HOLDERS + 8 * number(had))));
            (word(STICKY_IDS + 8 * usize::from(by_table)), holder)
        };
        match holder {
            Some((had, holder)) if had >> 8 == holder >> 8 => holder.to_le_bytes()[0],
            Some(_) | None => {
                if sticky_id != 0 {
                    self.queues[queue].flows.insert(flow, sticky_id);
                }
                by_table
            }
        }
    }
}

/// The record of a packet for a member.
fn record(packet: &Packet<'_>, (now_ns, is_copy): (u64, bool), wants: Wants) -> Record {
    let mut bytes = packet.frame.bytes.to_vec();
    let mut wire_len = packet.wire_len;
    let mut flags = if is_copy { COPY } else { 0 };
    let tag = packet.tag().filter(|_| bytes.len() >= ADDRESSES_LEN);
    if let Some(tag) = tag {
        let tag = [tag.tpid.to_be_bytes(), tag.tci.to_be_bytes()].concat();
        bytes.splice(ADDRESSES_LEN..ADDRESSES_LEN, tag);
        wire_len += 4;
    }
    if packet.is_sent {
        flags |= OUTGOING;
        flags |= if tag.is_some() { TAGGED } else { 0 };
    }
    bytes.truncate(wants.snaplen as usize);
    Record {
        bytes,
        wire_len,
        stamp_ns: packet.stamp_ns.unwrap_or(now_ns),
        flags,
    }
}
