//! State that all threads share: the number of packets left to capture, and each thread's last
//! counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanpcap_linux::wait::{clock, stop};

use crate::counts::Counts;

/// State shared by all threads.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Packets still to capture by all threads together; `None` without a limit.
    left: Option<AtomicU64>,
    /// Number of requests for counters so far. The first request is [`BEGIN`].
    round: AtomicU64,
    told: Mutex<Vec<ThreadCounts>>,
    changed: Condvar,
}

/// A thread's counters in its last answer.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCounts {
    round: u64,
    /// Time of the reading by [`clock::monotonic_ns`]; the thread's start before the first answer.
    pub at_ns: u64,
    /// The counters.
    pub counts: Counts,
}

impl ThreadCounts {
    /// The counters before the first request.
    pub fn new(at_ns: u64, counts: Counts) -> Self {
        Self {
            round: 0,
            at_ns,
            counts,
        }
    }
}

impl Shared {
    /// State without threads. `limit` is the maximum number of packets of all threads together.
    pub(crate) fn new(limit: Option<u64>) -> Self {
        Self {
            left: limit.map(AtomicU64::new),
            round: AtomicU64::new(BEGIN),
            told: Mutex::new(Vec::new()),
            changed: Condvar::new(),
        }
    }

    /// Adds a thread that starts now, and returns its number.
    pub(crate) fn add(&self) -> usize {
        let mut told = self.told();
        told.push(ThreadCounts::new(clock::monotonic_ns(), Counts::default()));
        told.len() - 1
    }

    /// Asks the threads for their counters; `wake` ends their waits. If a busy thread does not
    /// answer within [`PATIENCE`], its previous answer is used.
    pub(crate) fn ask(&self, wake: impl FnOnce()) -> Vec<ThreadCounts> {
        let round = self.round.fetch_add(1, Ordering::AcqRel) + 1;
        wake();
        let missing = |told: &mut Vec<ThreadCounts>| told.iter().any(|told| told.round < round);
        let waited = self
            .changed
            .wait_timeout_while(self.told(), PATIENCE, missing);
        let (told, _) = waited.unwrap_or_else(PoisonError::into_inner);
        told.clone()
    }

    /// Waits until each thread has read its handle once, or the capture is to end. A member of a
    /// group gets its share of the packets with its first read.
    pub(crate) fn await_begin(&self) {
        let mut told = self.told();
        while told.iter().any(|told| told.round < BEGIN) && !stop::is_requested() {
            let waited = self.changed.wait_timeout(told, PATIENCE);
            (told, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn told(&self) -> MutexGuard<'_, Vec<ThreadCounts>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the latest request.
    pub(crate) fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }

    /// Stores the answer of thread `number` to request `round`.
    pub(crate) fn tell(&self, number: usize, round: u64, counts: Counts) {
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

    /// Takes one packet from the number of packets left to capture. Returns false if none is left.
    pub(crate) fn take(&self) -> bool {
        let Some(left) = &self.left else { return true };
        let one_less = |left: u64| left.checked_sub(1);
        let taken = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
        if matches!(taken, Ok(1) | Err(_)) {
            stop::request();
        }
        taken.is_ok()
    }

    pub(crate) fn is_used_up(&self) -> bool {
        let left = self.left.as_ref();
        left.is_some_and(|left| left.load(Ordering::Acquire) == 0)
    }
}

/// The request that each thread answers after its first read.
pub(crate) const BEGIN: u64 = 1;
/// Longest wait for a busy thread's answer.
const PATIENCE: Duration = Duration::from_millis(200);
