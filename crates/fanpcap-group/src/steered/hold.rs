//! Who may change a member's part in its group's steering program: one thread at a time.
//!
//! The thread that has it blocks its signals. A handler that left it by siglongjmp(3) would leave
//! it locked for good.

use super::{Filtering, State, SteerError, Steered};
use fanpcap_linux::packet::Filter;
use fanpcap_linux::process::signal::Blocked;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::sync::MutexGuard;
use std::thread;
use std::time::Duration;

/// Milliseconds to wait for another thread.
const PATIENCE: u32 = 1000;

/// The state, unlocked when this is dropped; then signals come again.
#[derive(Debug)]
pub(super) struct Held<'a> {
    state: MutexGuard<'a, State>,
    _signals: Blocked,
}

impl Deref for Held<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// A member whose filters nobody else changes, while its handle's own filter is being set.
#[derive(Debug)]
pub struct Unchanging<'a>(Held<'a>);

impl Steered {
    /// The state; none where another thread has it. A fork may leave it locked in the child, for
    /// good.
    pub(super) fn try_hold(&self) -> Option<Held<'_>> {
        let signals = Blocked::new();
        let state = self.0.try_lock().ok()?;
        Some(Held {
            state,
            _signals: signals,
        })
    }

    /// The same, waiting for other threads for a second.
    pub(super) fn hold(&self) -> Result<Held<'_>, SteerError> {
        for _ in 0..PATIENCE {
            if let Some(held) = self.try_hold() {
                return Ok(held);
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(SteerError::Busy)
    }

    /// Keeps others from replacing the member's program or filter until the result is dropped. Who
    /// has several at a time blocks signals before and longer: each gives the thread back what it
    /// had blocked.
    ///
    /// # Errors
    /// [`SteerError::Busy`] when another thread keeps it for longer than a second.
    pub fn unchanging(&self) -> Result<Unchanging<'_>, SteerError> {
        self.hold().map(Unchanging)
    }
}

impl Unchanging<'_> {
    /// The handle has this filter now, as the socket tells, and the kernel that one alone: it gets
    /// the steering program with it again, else by itself.
    ///
    /// # Errors
    /// See [`SteerError`]. The kernel may then have the handle's filter alone.
    pub fn refilter(
        &mut self,
        socket: BorrowedFd<'_>,
        own: io::Result<Option<Filter>>,
    ) -> Result<Filtering, SteerError> {
        self.0.refilter(socket, own.map_err(SteerError::Read)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{member, own};
    use super::*;
    use crate::record::tests::steering;
    use std::os::fd::AsFd;
    use std::sync::Arc;

    #[test]
    fn nobody_replaces_the_program_while_a_filter_is_set() {
        let (steered, file) = member();
        let other = Arc::new(steering("main = steer_rnd"));
        let digest = other.digest();
        thread::scope(|scope| {
            let mut unchanging = steered.unchanging().unwrap();
            let replacing = scope.spawn(|| {
                let prepared = steered.prepare(&other)?;
                steered.go_over(&other, prepared, file.as_fd())
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!replacing.is_finished());
            assert_ne!(unchanging.0.steering.digest(), digest);
            let filter = Ok(Some(Filter::reject_all()));
            let filtering = unchanging.refilter(file.as_fd(), filter);
            assert_eq!(filtering.unwrap(), Filtering::Kernel);
            drop(unchanging);
            replacing.join().unwrap().unwrap();
        });
        assert!(own(&steered));
        assert_eq!(steered.steering().unwrap().digest(), digest);
    }

    #[test]
    fn a_filter_that_the_socket_does_not_tell_is_an_error() {
        let (steered, file) = member();
        let refused = Err(io::ErrorKind::PermissionDenied.into());
        let filtering = steered
            .unchanging()
            .unwrap()
            .refilter(file.as_fd(), refused);
        assert!(matches!(filtering, Err(SteerError::Read(_))));
        assert!(!own(&steered));
    }

    #[test]
    fn who_keeps_it_is_waited_for_no_longer_than_a_second() {
        let (steered, _) = member();
        let _kept = steered.unchanging().unwrap();
        thread::scope(|scope| {
            let waited = scope.spawn(|| steered.unchanging().err());
            assert!(matches!(waited.join().unwrap(), Some(SteerError::Busy)));
        });
    }
}
