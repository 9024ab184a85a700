//! Starts the copies one after another, so that members join in the order of the copies' numbers.
//! Copy 0 has rank 0 in a steering program, and is the first member of the kernel's group.

use std::time::{Duration, Instant};

use super::Watch;

/// Time for a copy to get its share of the packets. After that, all remaining copies start.
const EACH: Duration = Duration::from_secs(1);

/// Time for all copies together. After that, all remaining copies start.
const ALL: Duration = Duration::from_secs(5);

/// How far the starts of the copies have proceeded.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The next copy to start.
    next: usize,
    /// When the first copy was started.
    began: Option<Instant>,
    /// A copy has needed too long, so the remaining copies start without waiting.
    is_over: bool,
    /// Why a copy could not be started.
    pub(super) error: Option<anyhow::Error>,
}

impl Watch<'_> {
    /// Starts the copies whose turn has come. If a copy can't be started, ends all copies.
    pub(super) fn start_in_turn(&mut self) {
        while self.awaits_turn() && self.is_next_due() {
            let number = self.turns.next;
            self.turns.next += 1;
            self.turns.began.get_or_insert_with(Instant::now);
            if let Err(error) = self.start(number) {
                self.abort(format!("{error:#}"));
                self.turns.error = Some(error);
            }
        }
    }

    /// Whether copies wait for their first start.
    pub(super) fn awaits_turn(&self) -> bool {
        self.stopped.is_none() && self.turns.next < self.copies.len()
    }

    /// Whether the next copy may start: the copy before it has its share of the packets, or has
    /// needed too long.
    fn is_next_due(&mut self) -> bool {
        let Some(before) = self.turns.next.checked_sub(1) else {
            return true;
        };
        let copy = &self.copies[before];
        let began = self.turns.began;
        let is_late = copy.age() >= EACH || began.is_some_and(|began| began.elapsed() >= ALL);
        self.turns.is_over |= is_late && copy.pid().is_some();
        self.turns.is_over || copy.pid().is_none() || self.ledger.has_share(before)
    }
}
