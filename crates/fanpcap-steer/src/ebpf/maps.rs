//! The maps that the code needs.

use crate::hash::halves;
use crate::ir::{COUNTERS, FRAGMENTS_MAX, Tree};
use fanpcap_bpf::{MapKind, MapSpec};

/// Name of the map whose row 0 is the steering program's counters, 64 bits each.
pub const COUNTERS_MAP: &str = "counters";
/// Name of the map whose row 0 is one number: how many later fragments came before their first, and
/// may have left their flow by that.
pub const LATE_MAP: &str = "late";
/// Name of the map that has, on each CPU, how many packets were steered in turn, and of each
/// sampler how far it is, 32 bits each.
pub const TURNS_MAP: &str = "turns";
/// Name of the map of what fragments are steered by.
pub const FRAGMENTS_MAP: &str = "fragments";
/// Name of the map of all numbers of all sets.
pub const SETS_MAP: &str = "sets";

/// A map, by what it is for.
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
}

const COUNTERS_LEN: u32 = 8 * 64;
const _: () = assert!(COUNTERS_LEN as usize == 8 * COUNTERS);
/// Source, destination, id, and in one number VLAN and protocol or version.
const FRAGMENT_KEY_LEN: u32 = 40;
/// Hash, early or not, time.
const FRAGMENT_VALUE_LEN: u32 = 16;
/// A number's upper and lower half, and its set.
const SET_KEY_LEN: u32 = 24;
/// The one in turn, and the samplers.
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

/// The maps in use so far.
#[derive(Debug, Default)]
pub(super) struct Maps(Vec<Map>);

impl Maps {
    /// The place of a map in the object's list.
    pub(super) fn of(&mut self, map: Map) -> usize {
        let known = self.0.iter().position(|&known| known == map);
        known.unwrap_or_else(|| {
            self.0.push(map);
            self.0.len() - 1
        })
    }

    pub(super) fn specs(&self, tree: &Tree) -> Vec<MapSpec> {
        self.0.iter().map(|map| map.spec(tree)).collect()
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
