//! The maps that a program needs.

use crate::hash::halves;
use crate::ir::Program;

/// A map, by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Map {
    /// The program's counters, 64 bits each.
    Counters,
    /// How many later fragments came first.
    Late,
    /// On each CPU: how many packets were steered in turn, and of each sampler how far it is, 32 bits each.
    Turns,
    /// What fragments are steered by.
    Fragments,
    /// All numbers of all sets.
    Sets,
}

/// Source, destination, id, and in one number VLAN and protocol or version.
pub(super) const FRAGMENT_KEY_LEN: u32 = 40;
/// Hash, early or not, time.
pub(super) const FRAGMENT_VALUE_LEN: u32 = 16;
/// A number's upper and lower half, and its set.
pub(super) const SET_KEY_LEN: u32 = 24;
/// The one in turn, and the samplers.
pub(super) const TURNS_LEN: u32 = 4 * (1 + 256);

/// Those in use so far.
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

    pub(super) fn finish(self) -> Vec<Map> {
        self.0
    }
}

/// The keys of [`Map::Sets`].
pub(super) fn set_keys(program: &Program) -> Vec<[u8; SET_KEY_LEN as usize]> {
    let all = program.sets.iter().enumerate();
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
