//! The maps of a BPF program.

use crate::hash::halves;
use crate::ir::{COUNTERS, FRAGMENTS_MAX, Tree};
use fanpcap_bpf::{MapKind, MapSpec};
use fanpcap_buckets::layout;

/// Name of the map with the steering program's counters. Entry 0 has all counters, 64 bits each.
pub const COUNTERS_MAP: &str = "counters";
/// Name of the map that counts the later fragments that came before the first fragment of their
/// datagram. The number is in entry 0. These fragments may have gone to another member than the
/// other packets of their flow.
pub const LATE_MAP: &str = "late";
/// Name of the per-CPU map with the counter of round-robin steering and the position of each
/// sampler, 32 bits each.
pub const TURNS_MAP: &str = "turns";
/// Name of the map with the hashes of fragmented datagrams.
pub const FRAGMENTS_MAP: &str = "fragments";
/// Name of the map with all elements of all sets.
pub const SETS_MAP: &str = "sets";

/// Name of the group's table of slots. The members share the table, so a member passes the table to
/// the loader.
pub const TABLE_MAP: &str = "table";

/// Name of the map in which a sticky group remembers the last member of each flow.
pub const FLOWS_MAP: &str = "flows";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Map {
    /// [`COUNTERS_MAP`].
    Counters,
    /// [`LATE_MAP`].
    Late,
    /// [`TURNS_MAP`].
    Turns,
    /// [`FRAGMENTS_MAP`].
    Fragments,
    /// [`SETS_MAP`].
    Sets,
    /// [`TABLE_MAP`], with a part for each class if `classes`.
    Table { classes: bool },
    /// [`FLOWS_MAP`], for this many flows. With `classes`, each class has its own entry for a flow.
    Flows { flows: u32, classes: bool },
}

const COUNTERS_LEN: u32 = 8 * 64;
const _: () = assert!(COUNTERS_LEN as usize == 8 * COUNTERS);
/// Length of a key of [`FRAGMENTS_MAP`]: source, destination, identification, and one number, which
/// has the VLAN id and the protocol (in IPv4) or the version (in IPv6).
const FRAGMENT_KEY_LEN: u32 = 40;
/// Length of a value of [`FRAGMENTS_MAP`]: the hash, a mark if the entry is from a fragment that
/// came before the first fragment, and the time.
const FRAGMENT_VALUE_LEN: u32 = 16;
/// Length of a key of [`SETS_MAP`]: upper and lower half of a number, and the index of the number's
/// set.
const SET_KEY_LEN: u32 = 24;
const TABLE_LEN: u32 = 98_304;
const CLASSES_LEN: u32 = 393_216;
const _: () = assert!(TABLE_LEN as usize == layout::SIZE);
const _: () = assert!(CLASSES_LEN as usize == layout::SIZE_WITH_CLASSES);
/// Length of the entry with the round-robin counter and the positions of the samplers.
const TURNS_LEN: u32 = 4 * (1 + 256);

impl Map {
    fn spec(self, tree: &Tree) -> MapSpec {
        match self {
            Self::Counters => MapSpec::new(COUNTERS_MAP, MapKind::Array, 4, COUNTERS_LEN, 1),
            Self::Late => MapSpec::new(LATE_MAP, MapKind::Array, 4, 8, 1),
            Self::Turns => MapSpec::new(TURNS_MAP, MapKind::PerCpuArray, 4, TURNS_LEN, 1),
            Self::Fragments => {
                let (key, value) = (FRAGMENT_KEY_LEN, FRAGMENT_VALUE_LEN);
                MapSpec::new(FRAGMENTS_MAP, MapKind::LruHash, key, value, FRAGMENTS_MAX)
            }
            Self::Table { classes } => {
                MapSpec::given(TABLE_MAP, if classes { CLASSES_LEN } else { TABLE_LEN })
            }
            // A key has the hash of a flow. A value is the sticky id of the flow's last member
            // (`layout::STICKY_IDS`).
            Self::Flows { flows, classes } => {
                let key_len = if classes { 8 } else { 4 };
                MapSpec::new(FLOWS_MAP, MapKind::LruHash, key_len, 8, flows)
            }
            Self::Sets => {
                let keys = set_keys(tree);
                let entries = u32::try_from(keys.len()).unwrap_or(u32::MAX);
                MapSpec {
                    values: vec![1; keys.len()],
                    keys: keys.concat(),
                    ..MapSpec::new(SETS_MAP, MapKind::Hash, SET_KEY_LEN, 1, entries.max(1))
                }
            }
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Maps {
    /// The maps of a [`super::Delivery`]. They come first in the object, so that the delivery's
    /// indices are right.
    of_delivery: Vec<MapSpec>,
    own: Vec<Map>,
}

impl Maps {
    /// Puts the maps of a delivery before all others.
    pub(super) fn begin_with(&mut self, of_delivery: Vec<MapSpec>) {
        self.of_delivery = of_delivery;
    }

    pub(super) fn of(&mut self, map: Map) -> usize {
        let known = self.own.iter().position(|&known| known == map);
        let place = known.unwrap_or_else(|| {
            self.own.push(map);
            self.own.len() - 1
        });
        self.of_delivery.len() + place
    }

    pub(super) fn specs(self, tree: &Tree) -> Vec<MapSpec> {
        let own = self.own.iter().map(|map| map.spec(tree));
        self.of_delivery.into_iter().chain(own).collect()
    }
}

/// The keys of [`Map::Sets`].
fn set_keys(tree: &Tree) -> Vec<[u8; SET_KEY_LEN as usize]> {
    let all = tree.sets.iter().enumerate();
    all.flat_map(|(index, set)| set.iter().map(move |&number| set_key(index, number)))
        .collect()
}

fn set_key(index: usize, number: u128) -> [u8; SET_KEY_LEN as usize] {
    let mut key = [0; SET_KEY_LEN as usize];
    let (high, low) = halves(number);
    let halves = [high, low, index as u64];
    for (to, half) in key.chunks_exact_mut(8).zip(halves) {
        to.copy_from_slice(&half.to_ne_bytes());
    }
    key
}
