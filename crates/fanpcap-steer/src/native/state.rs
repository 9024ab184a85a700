//! The state of an evaluator between packets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::fragments::Fragments;
use crate::hash::{NUMBER_MAX, finish};
use crate::ir::COUNTERS;

#[derive(Debug)]
pub(super) struct State {
    pub(super) counters: [u64; COUNTERS],
    /// Evaluators of one steering program in several threads may share this.
    fragments: Arc<Mutex<Fragments>>,
    turns: BTreeMap<u32, Turns>,
    random: u64,
}

/// The counters of one CPU. Each CPU has separate counters.
#[derive(Clone, Debug, Default)]
struct Turns {
    round: u32,
    /// The number of packets in the current period, by the sampler's index.
    samples: BTreeMap<u8, u32>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            counters: [0; COUNTERS],
            fragments: Arc::default(),
            turns: BTreeMap::new(),
            random: 0,
        }
    }
}

impl Clone for State {
    fn clone(&self) -> Self {
        Self {
            counters: self.counters,
            fragments: Arc::new(Mutex::new(self.fragments().clone())),
            turns: self.turns.clone(),
            random: self.random,
        }
    }
}

impl State {
    /// A new state that shares the fragments with this one.
    pub(super) fn sharing(&self) -> Self {
        Self {
            fragments: Arc::clone(&self.fragments),
            ..Self::default()
        }
    }

    /// The fragments. Only packets that are fragments need them.
    pub(super) fn fragments(&self) -> MutexGuard<'_, Fragments> {
        // A thread that has panicked has left the fragments whole.
        self.fragments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&mut self, counter: u8, by: i64) {
        if let Some(counter) = self.counters.get_mut(usize::from(counter)) {
            *counter = counter.wrapping_add_signed(by);
        }
    }

    pub(super) fn turn(&mut self, cpu: u32) -> u32 {
        let round = &mut self.turns.entry(cpu).or_default().round;
        let turn = *round;
        *round = turn.wrapping_add(1) & NUMBER_MAX;
        turn
    }

    pub(super) fn is_sampled(&mut self, cpu: u32, index: u8, keep: u32, of: u32) -> bool {
        let turns = self.turns.entry(cpu).or_default();
        let come = turns.samples.entry(index).or_default();
        let place = *come;
        *come = if place.saturating_add(1) < of {
            place.saturating_add(1)
        } else {
            0
        };
        place < keep
    }

    /// The next number of SplitMix64 (Steele, Lea, Flood 2014). The generator need not be secure,
    /// because its numbers only spread packets.
    pub(super) fn random(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        finish(z ^ (z >> 31))
    }
}
