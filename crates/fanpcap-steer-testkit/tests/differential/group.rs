//! A group with a drawn table, in the kernel and as the evaluator reads it.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use fanpcap_bpf::Object;
use fanpcap_buckets::layout::{BUCKETS, HOLDERS, OWN, RANK_COUNT, RANKS, SEATS, SIZE, SLOTS};
use fanpcap_linux::bpf::{self, LoadError, Loaded};
use fanpcap_steer::ebpf::TABLE_MAP;
use fanpcap_steer::native::{self, Decision, Flows};
use fanpcap_steer_testkit::tape;

/// A group, by the seed of its table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group(pub(crate) u64);

/// The group's table.
pub(crate) struct Table {
    bytes: Vec<u8>,
    ranks: usize,
    seats: [u64; SLOTS],
    holders: [u64; SLOTS],
    shared: bpf::Table,
}

impl Group {
    /// Its table, with slots and a number of ranks that are drawn.
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
        let shared = bpf::Table::create("proof", u32::try_from(SIZE).unwrap()).unwrap();
        let mut table = Table {
            bytes,
            ranks,
            seats: [0; SLOTS],
            holders: [0; SLOTS],
            shared,
        };
        table.seat(|slot| Some((slot.into(), !slot)));
        table
    }
}

impl Table {
    /// What the group's program returns.
    pub(crate) fn returns(&self, decision: Decision) -> u32 {
        self.view().slot(decision).into()
    }

    /// The same for a sticky group, whose program has remembered `flows`.
    pub(crate) fn sticks(&self, flows: &mut Flows, decision: Decision) -> u32 {
        flows.slot(&self.view(), decision).into()
    }

    /// Draws the owners of all buckets anew.
    pub(crate) fn draw_owners(&mut self, seed: u64) {
        let owners = tape(seed, BUCKETS);
        self.bytes[..BUCKETS].copy_from_slice(&owners);
        self.share();
    }

    /// Says who stands in each slot: stamp and number; `None` for nobody.
    pub(crate) fn seat(&mut self, who: impl Fn(u8) -> Option<(u64, u8)>) {
        (self.seats, self.holders) = ([0; SLOTS], [0; SLOTS]);
        for slot in 0..=u8::MAX {
            if let Some((stamp, number)) = who(slot) {
                let stamp = (stamp + 1) << 8;
                self.seats[usize::from(slot)] = stamp | u64::from(number);
                self.holders[usize::from(number)] = stamp | u64::from(slot);
            }
        }
        for (at, words) in [(SEATS, &self.seats), (HOLDERS, &self.holders)] {
            let words: Vec<u8> = words.iter().flat_map(|it| it.to_ne_bytes()).collect();
            self.bytes[at..at + words.len()].copy_from_slice(&words);
        }
        self.share();
    }

    /// Writes all bytes to the map.
    fn share(&self) {
        for (to, byte) in self.shared.bytes().iter().zip(&self.bytes) {
            to.store(*byte, Relaxed);
        }
    }

    fn view(&self) -> native::Table<'_> {
        native::Table {
            buckets: self.bytes.first_chunk::<BUCKETS>().unwrap(),
            ranks: &self.bytes[RANKS..RANKS + self.ranks],
            seats: &self.seats,
            holders: &self.holders,
        }
    }

    /// Loads an object, which may ask for the table.
    pub(crate) fn load(&self, object: &Object, name: &str) -> Result<Loaded, LoadError> {
        Loaded::load_with(object, name, &[(TABLE_MAP, self.shared.as_fd())])
    }
}
