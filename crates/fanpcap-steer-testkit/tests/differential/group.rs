//! A group with a drawn table, which both the kernel and the evaluator use.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use fanpcap_bpf::{MapSpec, Object};
use fanpcap_buckets::layout::{
    BUCKETS, EVERYBODY, HOLDERS, LOADS, OWN, RANK_COUNT, RANKS, SIZE, SIZE_WITH_CLASSES, SLOTS,
    STICKY_IDS, bucket, part,
};
use fanpcap_linux::bpf::{self, LoadError, Loaded};
use fanpcap_steer::ebpf::TABLE_MAP;
use fanpcap_steer::native::{self, Decision, Flows, Host, Outcome};
use fanpcap_steer_testkit::tape;
use std::collections::BTreeMap;

use super::recording::{RECORD_MAP, Record, Recorder};

/// A group. The number is the seed from which its table is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group(pub(crate) u64);

/// The group's table.
pub(crate) struct Table {
    bytes: Vec<u8>,
    ranks: usize,
    sticky_ids: [u64; SLOTS],
    holders: [u64; SLOTS],
    shared: bpf::Table,
    /// Another table with the same bytes. It also has parts for classes, as tables of groups at XDP
    /// have.
    with_parts: bpf::Table,
    /// The parts of all classes and the part for all members, if the group has classes.
    parts: Option<Vec<u8>>,
    recorder: Recorder,
}

impl Group {
    /// The group's table, with drawn slots and a drawn number of ranks.
    pub(crate) fn table(self) -> Table {
        let mut bytes = tape(!self.0, OWN);
        let drawn = usize::from(bytes[OWN - 1]);
        let ranks = match self.0 % 16 {
            3 => 0,
            7 => SLOTS,
            _ => drawn.max(1),
        };
        let count = u32::try_from(ranks).unwrap();
        bytes[RANK_COUNT..RANK_COUNT + 4].copy_from_slice(&count.to_ne_bytes());
        let [shared, with_parts] = [SIZE, SIZE_WITH_CLASSES]
            .map(|len| bpf::Table::create("proof", u32::try_from(len).unwrap()).unwrap());
        let mut table = Table {
            bytes,
            ranks,
            sticky_ids: [0; SLOTS],
            holders: [0; SLOTS],
            shared,
            with_parts,
            parts: None,
            recorder: Recorder::new(),
        };
        table.sticky_id(|slot| Some((slot.into(), !slot)));
        table
    }

    /// The table of a group with classes. Every third class has no members.
    pub(crate) fn table_with_classes(self) -> Table {
        let mut table = self.table();
        let mut bytes = tape(!self.0 ^ (1 << 40), SIZE_WITH_CLASSES);
        bytes[..OWN].copy_from_slice(&table.bytes);
        for class in 1..=EVERYBODY {
            let at = part(class) + RANK_COUNT;
            let ranks = match (class as u64 + self.0) % 6 {
                2 | 5 => 0,
                3 => 1,
                4 => 200 + u32::from(bytes[at]) % 57,
                _ => u32::from(bytes[at]) % 4 + 1,
            };
            bytes[at..at + 4].copy_from_slice(&ranks.to_ne_bytes());
        }
        for (to, byte) in table.with_parts.bytes().iter().zip(&bytes) {
            to.store(*byte, Relaxed);
        }
        table.parts = Some(bytes);
        table
    }
}

impl Table {
    /// The slot that the group's BPF program returns.
    pub(crate) fn returns(&self, decision: Decision) -> u32 {
        self.view().slot(decision).into()
    }

    /// The slot that a sticky group's BPF program returns. `flows` are the flows that the program
    /// has remembered.
    pub(crate) fn sticks(&self, flows: &mut Flows, decision: Decision) -> u32 {
        flows.slot(&self.view(), decision).into()
    }

    /// The number of packets that the BPF program has counted for each bucket. The program counts
    /// in one of the two tables, so the function adds up both.
    pub(crate) fn loads(&self) -> Vec<u32> {
        let of = |map: &bpf::Table| -> Vec<u32> {
            let counts = map.view::<AtomicU32>(LOADS, 2 * BUCKETS).unwrap();
            let counts = counts.iter().step_by(2);
            counts.map(|count| count.load(Relaxed)).collect()
        };
        let both = of(&self.shared).into_iter().zip(of(&self.with_parts));
        both.map(|(one, other)| one + other).collect()
    }

    /// Draws new owners for all buckets.
    pub(crate) fn draw_owners(&mut self, seed: u64) {
        let owners = tape(seed, BUCKETS);
        self.bytes[..BUCKETS].copy_from_slice(&owners);
        self.share();
    }

    /// Draws new owners for all buckets of the default class, in a group with classes.
    pub(crate) fn draw_owners_at_xdp(&mut self, seed: u64) {
        let owners = tape(seed, BUCKETS);
        for (to, byte) in self.with_parts.bytes().iter().zip(&owners) {
            to.store(*byte, Relaxed);
        }
        if let Some(parts) = &mut self.parts {
            parts[..BUCKETS].copy_from_slice(&owners);
        }
    }

    /// Sets the sticky id of each slot's member. `who` returns the member's stamp and number, or
    /// `None` for an empty slot.
    pub(crate) fn sticky_id(&mut self, who: impl Fn(u8) -> Option<(u64, u8)>) {
        (self.sticky_ids, self.holders) = ([0; SLOTS], [0; SLOTS]);
        for slot in 0..=u8::MAX {
            if let Some((stamp, number)) = who(slot) {
                let stamp = (stamp + 1) << 8;
                self.sticky_ids[usize::from(slot)] = stamp | u64::from(number);
                self.holders[usize::from(number)] = stamp | u64::from(slot);
            }
        }
        for (at, words) in [(STICKY_IDS, &self.sticky_ids), (HOLDERS, &self.holders)] {
            let words: Vec<u8> = words.iter().flat_map(|it| it.to_ne_bytes()).collect();
            self.bytes[at..at + words.len()].copy_from_slice(&words);
        }
        self.share();
    }

    /// Writes all bytes to both tables in the kernel.
    fn share(&self) {
        for map in [&self.shared, &self.with_parts] {
            for (to, byte) in map.bytes().iter().zip(&self.bytes) {
                to.store(*byte, Relaxed);
            }
        }
    }

    fn view(&self) -> native::Table<'_> {
        native::Table {
            buckets: self.bytes.first_chunk::<BUCKETS>().unwrap(),
            ranks: &self.bytes[RANKS..RANKS + self.ranks],
            sticky_ids: &self.sticky_ids,
            holders: &self.holders,
        }
    }

    /// The record that a BPF program at XDP must make for a packet.
    pub(crate) fn delivers(&self, outcome: &Outcome) -> Record {
        let host = match outcome.host {
            Host::Unsaid => 0,
            Host::Too => 1,
            Host::Only => 2,
        };
        let nothing = Record {
            host,
            ..Record::default()
        };
        if outcome.decision == Decision::Drop {
            return Record {
                dropped: 1,
                ..nothing
            };
        }
        match self.slots(outcome) {
            Some(slots) => Record { slots, ..nothing },
            None => Record {
                missed: 1,
                ..nothing
            },
        }
    }

    /// The slots that get a packet that the program does not drop, each with its number of
    /// deliveries. `None` if no member can get the packet.
    fn slots(&self, outcome: &Outcome) -> Option<BTreeMap<u8, u64>> {
        let class = match (outcome.decision, &self.parts) {
            (_, None) => 0,
            (Decision::Broadcast, Some(_)) => EVERYBODY,
            (_, Some(_)) => outcome.class.into(),
        };
        let all = self.parts.as_ref().unwrap_or(&self.bytes);
        let bytes = &all[part(class)..part(class) + RANK_COUNT + 4];
        let (owners, count) = bytes.split_at(RANK_COUNT);
        let count = usize::try_from(u32::from_ne_bytes(count.try_into().unwrap())).unwrap();
        let ranks = &owners[RANKS..][..count];
        let owner = |hash| owners[bucket(hash)];
        let mut slots = BTreeMap::new();
        let mut add = |slot| *slots.entry(slot).or_default() += 1;
        match outcome.decision {
            Decision::Copy | Decision::Broadcast if count == 0 => return None,
            _ if self.parts.is_some() && count == 0 => return None,
            Decision::Copy | Decision::Broadcast => ranks.iter().copied().for_each(add),
            Decision::Steer(hash) => add(owner(hash)),
            Decision::Member(number) => {
                let rank = (number as usize).checked_rem(count);
                add(rank.map_or(0, |rank| ranks[rank]));
            }
            Decision::Double(one, other) if owner(one) == owner(other) => add(owner(one)),
            Decision::Double(one, other) => {
                add(owner(one));
                add(owner(other));
            }
            Decision::Drop => {}
        }
        Some(slots)
    }

    /// The record of the last packet. `host` is the result of the BPF program.
    pub(crate) fn recorded(&self, host: u32) -> Record {
        self.recorder.take(host)
    }

    /// Loads an object, which may use the table.
    pub(crate) fn load(&self, object: &Object, name: &str) -> Result<Loaded, LoadError> {
        let has_parts = |spec: &MapSpec| spec.name == TABLE_MAP && spec.entries as usize * 8 > SIZE;
        let shared = match object.maps.iter().any(has_parts) {
            true => &self.with_parts,
            false => &self.shared,
        };
        let given = [
            (TABLE_MAP, shared.as_fd()),
            (RECORD_MAP, self.recorder.fd()),
        ];
        Loaded::load_with(object, name, &given)
    }
}
