//! Processes that are killed in the middle of a change.

use super::{Killed, World};
use std::panic::{self, AssertUnwindSafe};

impl World {
    /// Runs `work`, and kills `actor` after this many steps. Returns how many steps are left.
    pub(in super::super) fn dying(
        &mut self,
        actor: u64,
        steps: u64,
        work: impl FnOnce(&mut Self),
    ) -> Result<u64, Killed> {
        self.kernel.left = Some(steps);
        let done = panic::catch_unwind(AssertUnwindSafe(|| work(self)));
        let left = self.kernel.left.take().unwrap_or(0);
        match done {
            Ok(()) => Ok(left),
            Err(payload) if payload.is::<Killed>() => {
                self.close(actor);
                Err(Killed)
            }
            Err(payload) => panic::resume_unwind(payload),
        }
    }
}
