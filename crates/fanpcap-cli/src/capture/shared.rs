//! What the threads share: the packets left to capture, and each thread's last counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanpcap_linux::wait::{clock, stop};

use super::counts::Counts;

/// What all threads see.
#[derive(Debug)]
pub(super) struct Shared {
    /// Packets that may still be captured, of all threads together.
    left: Option<AtomicU64>,
    /// How often the threads have been asked for their counters.
    round: AtomicU64,
    told: Mutex<Vec<ThreadCounts>>,
    changed: Condvar,
}

/// A thread's counters, when it was asked last.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadCounts {
    round: u64,
    /// When they were read, by the clock of [`clock::monotonic_ns`]; at first, when the threads
    /// began.
    pub(super) at_ns: u64,
    /// The counters.
    pub(super) counts: Counts,
}

impl ThreadCounts {
    /// Before anybody asked.
    pub(super) fn new(at_ns: u64, counts: Counts) -> Self {
        Self {
            round: 0,
            at_ns,
            counts,
        }
    }
}

impl Shared {
    /// For so many packets if these are limited, and no threads yet.
    pub(super) fn new(limit: Option<u64>) -> Self {
        Self {
            left: limit.map(AtomicU64::new),
            round: AtomicU64::new(0),
            told: Mutex::new(Vec::new()),
            changed: Condvar::new(),
        }
    }

    /// One thread more, which begins now; its number.
    pub(super) fn add(&self) -> usize {
        let mut told = self.told();
        told.push(ThreadCounts::new(clock::monotonic_ns(), Counts::default()));
        told.len() - 1
    }

    /// Asks the threads for their counters. `wake` ends their waits. A thread that is busy with its
    /// packets is waited for a moment only; what it said before stands then.
    pub(super) fn ask(&self, wake: impl FnOnce()) -> Vec<ThreadCounts> {
        let round = self.round.fetch_add(1, Ordering::AcqRel) + 1;
        wake();
        let missing = |told: &mut Vec<ThreadCounts>| told.iter().any(|told| told.round < round);
        let waited = self
            .changed
            .wait_timeout_while(self.told(), PATIENCE, missing);
        let (told, _) = waited.unwrap_or_else(PoisonError::into_inner);
        told.clone()
    }

    fn told(&self) -> MutexGuard<'_, Vec<ThreadCounts>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of times that the threads were asked.
    pub(super) fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }

    /// Stores what the thread of this number answers in a round.
    pub(super) fn tell(&self, number: usize, round: u64, counts: Counts) {
        let at_ns = clock::monotonic_ns();
        if let Some(place) = self.told().get_mut(number) {
            *place = ThreadCounts {
                round,
                at_ns,
                counts,
            };
        }
        self.changed.notify_all();
    }

    /// Takes one packet off the limit; false when it was reached before.
    pub(super) fn take(&self) -> bool {
        let Some(left) = &self.left else { return true };
        let one_less = |left: u64| left.checked_sub(1);
        let taken = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
        if matches!(taken, Ok(1) | Err(_)) {
            stop::request();
        }
        taken.is_ok()
    }

    pub(super) fn is_used_up(&self) -> bool {
        let left = self.left.as_ref();
        left.is_some_and(|left| left.load(Ordering::Acquire) == 0)
    }
}

/// How long a thread that does not answer is waited for.
const PATIENCE: Duration = Duration::from_millis(200);
