//! Locks the state of a member's steering program: one thread changes it at a time.
//!
//! The thread that has the lock blocks its signals: a signal handler that leaves by siglongjmp(3)
//! would never unlock the state.

use super::{Filtering, State, SteerError, Steered};
use fanpcap_linux::packet::Filter;
use fanpcap_linux::process::signal::Blocked;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::sync::MutexGuard;
use std::thread;
use std::time::Duration;

/// How many milliseconds to wait for another thread.
const PATIENCE: u32 = 1000;

/// The locked state. Dropping this unlocks the state, and then unblocks the signals.
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

/// A locked member: while this value lives, no other thread can replace the member's steering
/// program or filter. Held while the application sets the handle's own filter.
#[derive(Debug)]
pub struct Unchanging<'a>(Held<'a>);

impl Steered {
    /// Locks the state; `None` if another thread has locked it. After a fork the state may stay
    /// locked in the child for ever.
    pub(super) fn try_hold(&self) -> Option<Held<'_>> {
        let signals = Blocked::new();
        let state = self.0.try_lock().ok()?;
        Some(Held {
            state,
            _signals: signals,
        })
    }

    /// Locks the state and waits for other threads for at most a second.
    pub(super) fn hold(&self) -> Result<Held<'_>, SteerError> {
        for _ in 0..PATIENCE {
            if let Some(held) = self.try_hold() {
                return Ok(held);
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(SteerError::Busy)
    }

    /// Keeps other threads from replacing the member's steering program or filter until the result
    /// is dropped. A caller that locks several members must block signals before the first lock and
    /// until after the last unlock, because each unlock restores the signal mask from before its
    /// own lock.
    ///
    /// # Errors
    /// [`SteerError::Busy`] when another thread keeps the lock for longer than a second.
    pub fn unchanging(&self) -> Result<Unchanging<'_>, SteerError> {
        self.hold().map(Unchanging)
    }
}

impl Unchanging<'_> {
    /// Combines the filtering part with the filter `own` that the application has just set. At the
    /// call, the kernel runs `own` alone. This attaches both filters together. If they can't be
    /// loaded together, it attaches the filtering part alone.
    ///
    /// # Errors
    /// See [`SteerError`]. The kernel may then run `own` alone.
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
                let prepared = steered.prepare(&other, file.as_fd())?;
                steered.switch_to(&other, prepared, [file.as_fd(); 2])
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
