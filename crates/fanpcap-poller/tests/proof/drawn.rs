//! Draws groups: a steering program, a table, and members.

use super::model::{Model, OnQueue};
use crate::scene::table;
use fanpcap_buckets::layout::{
    BUCKETS, EVERYBODY, HOLDERS, OWNERS, RANK_COUNT, RANKS, SLOTS, STICKY_IDS, part,
};
use fanpcap_linux::memory::Memory;
use fanpcap_poller::{NewGroup, Wants};
use fanpcap_steer::native::Evaluator;
use fanpcap_steer::{Balance, GroupOptions, ir::Tree, modes};
use fanpcap_steer_testkit::{Draw, programs, tape};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The classes that drawn programs use, and the part of all members.
const PARTS: [usize; 5] = [0, 1, 2, 63, EVERYBODY];

/// The most members of a group.
const MEMBERS_MAX: usize = 7;

/// More flows than a case has, so that none is forgotten.
const FLOWS: u32 = 1 << 16;

/// A group for the poller, and the model of it.
pub struct Drawn {
    pub new: NewGroup,
    pub model: Model,
    /// The slots that have a member from time to time.
    pub slots: Vec<u8>,
}

/// A program by which packets of a flow may have different classes.
const CLASSES: &str = "main = do\n  when (ip_ttl .> 64) (classify 1)\n  steer_flow";

/// A program by which packets may go to two members.
const DOUBLE: &str = "main = conditional is_udp double_steer_ip steer_flow";

/// Every fourth program is that of the mode `flow`, which has a path of its own.
fn program(seed: u64, draw: &mut Draw<'_>) -> Tree {
    let of_source = |source: &str| {
        let no_pcap = |_: &str| Err("no libpcap".to_owned());
        fanpcap_steer::tree(source, &no_pcap).unwrap()
    };
    match seed % 8 {
        0 | 4 => of_source(modes::source("flow").unwrap()),
        1 => of_source(draw.pick(&modes::MODES).1),
        2 | 6 => programs::device_program(draw),
        3 => programs::program(draw),
        5 => of_source(CLASSES),
        7 if draw.one_in(2) => of_source(DOUBLE),
        _ => programs::group_program(draw),
    }
}

impl Drawn {
    /// The group of a seed, on so many queues.
    pub fn of(seed: u64, queues: usize) -> Self {
        let tape = tape(!seed, 400);
        let mut draw = Draw::new(&tape);
        let has_classes = !draw.one_in(4);
        let options = GroupOptions {
            flows: draw.one_in(3).then_some(FLOWS),
            balance: draw.one_in(3).then_some(Balance::Idle),
        };
        let slots: Vec<u8> = (0..=draw.below(MEMBERS_MAX)).map(|_| draw.byte()).collect();
        // Without the limits of a group, a packet may go to the members of both its addresses.
        let is_of_group = !draw.one_in(3);
        let tree = program(seed, &mut draw);
        let memory = table(has_classes);
        let first = match is_of_group {
            true => Evaluator::of_group(&tree),
            false => Evaluator::new(&tree),
        };
        // Equal to what a poller does: its threads share the fragments.
        let reference = first.clone();
        let all = (0..queues).map(|_| OnQueue::new(reference.for_other_thread()));
        let mut drawn = Self {
            model: Model {
                table: vec![0; memory.len()],
                has_classes,
                options,
                members: BTreeMap::new(),
                loads: vec![0; BUCKETS],
                queues: all.collect(),
            },
            new: NewGroup {
                steering: first,
                table: memory,
                options,
                user: 0,
                filter: None,
            },
            slots,
        };
        drawn.slots.sort_unstable();
        drawn.slots.dedup();
        drawn.change_table(seed);
        drawn
    }

    /// Draws the owners, the ranks and the sticky ids anew.
    pub fn change_table(&mut self, seed: u64) {
        let tape = tape(seed ^ (1 << 40), 64 + PARTS.len() * (BUCKETS + SLOTS));
        let (first, rest) = tape.split_at(64);
        let mut draw = Draw::new(first);
        let table = &mut self.model.table;
        let parts = match self.model.has_classes {
            true => &PARTS[..],
            false => &PARTS[..1],
        };
        for (class, drawn) in parts.iter().zip(rest.chunks(BUCKETS + SLOTS)) {
            let count = draw.below(self.slots.len() + 1);
            let count = if *class == 0 { count.max(1) } else { count };
            fill(
                &mut table[part(*class)..],
                (&self.slots, count),
                drawn,
                &mut draw,
            );
        }
        set_sticky_ids(table, &self.slots, &mut draw);
        self.show(parts);
    }

    /// Stores the parts of the model's table, and the sticky ids, in the poller's table.
    fn show(&self, parts: &[usize]) {
        let memory: &Arc<Memory> = &self.new.table;
        let store = |from: usize, len: usize| {
            let bytes = &self.model.table[from..from + len];
            for (to, byte) in memory.bytes()[from..].iter().zip(bytes) {
                to.store(*byte, Ordering::Relaxed);
            }
        };
        for class in parts {
            store(part(*class), RANK_COUNT + 4);
        }
        store(STICKY_IDS, SLOTS * 8);
        store(HOLDERS, SLOTS * 8);
    }

    /// What the member of a slot wants.
    pub fn wants(draw: &mut Draw<'_>) -> Wants {
        Wants {
            snaplen: draw.pick(&[262_144, 96, 40, 12, 14, 1]),
            sent: draw.one_in(2),
        }
    }
}

/// Writes a part of the table: some of the slots have ranks and own buckets. A bucket may also
/// belong to a slot without a rank, as while a member leaves.
fn fill(part: &mut [u8], (slots, count): (&[u8], usize), drawn: &[u8], draw: &mut Draw<'_>) {
    let first = draw.below(slots.len());
    let ranks: Vec<u8> = slots
        .iter()
        .cycle()
        .skip(first)
        .take(count)
        .copied()
        .collect();
    let owners = if draw.one_in(4) { slots } else { &ranks };
    for (to, byte) in part[OWNERS..OWNERS + BUCKETS].iter_mut().zip(drawn) {
        let owner = usize::from(*byte).checked_rem(owners.len());
        *to = owner.map_or(*byte, |owner| owners[owner]);
    }
    part[RANKS..RANKS + count].copy_from_slice(&ranks);
    let count = u32::try_from(count).unwrap();
    part[RANK_COUNT..RANK_COUNT + 4].copy_from_slice(&count.to_ne_bytes());
}

/// Gives the members sticky ids, so that some have other slots than before and some are gone.
fn set_sticky_ids(table: &mut [u8], slots: &[u8], draw: &mut Draw<'_>) {
    table[STICKY_IDS..STICKY_IDS + SLOTS * 8].fill(0);
    table[HOLDERS..HOLDERS + SLOTS * 8].fill(0);
    let turn = draw.below(slots.len());
    for (number, slot) in (0_u8..).zip(slots.iter().cycle().skip(turn).take(slots.len())) {
        if draw.one_in(6) {
            continue;
        }
        let stamp = u64::from(draw.pick(&[7_u8, 7, 9])) << 8;
        let mut set = |at: usize, index: u8, word: u64| {
            let at = at + 8 * usize::from(index);
            table[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        };
        set(STICKY_IDS, *slot, stamp | u64::from(number));
        set(HOLDERS, number, stamp | u64::from(*slot));
    }
}
