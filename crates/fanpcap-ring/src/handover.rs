//! A value that any thread hands over to the reading thread.

use std::fmt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Room for one boxed value, without a lock. A lock could stay locked if a signal handler left
/// [`Handover::give`] by siglongjmp(3), or in a child process that another thread forks during that
/// call.
pub struct Handover<T>(pub(crate) AtomicPtr<T>);

// SAFETY: a value is given by one thread and taken by another, one at a time.
unsafe impl<T: Send> Send for Handover<T> {}

// SAFETY: as above; no thread has a reference to a value that is stored here.
unsafe impl<T: Send> Sync for Handover<T> {}

impl<T> Handover<T> {
    /// Gives a value. Replaces a value that has not been taken.
    pub fn give(&self, value: Box<T>) {
        drop(self.swap(Some(value)));
    }

    /// Takes the value that was given last. `None` if no value was given since the last call.
    pub fn take(&self) -> Option<Box<T>> {
        self.swap(None)
    }

    /// Stores a value, or none. Returns what was stored before.
    pub(crate) fn swap(&self, value: Option<Box<T>>) -> Option<Box<T>> {
        let value = value.map_or(null_mut(), Box::into_raw);
        let before = self.0.swap(value, Ordering::AcqRel);
        // SAFETY: the box was leaked when it was stored, and the thread that swaps it out owns it.
        (!before.is_null()).then(|| unsafe { Box::from_raw(before) })
    }
}

impl<T> Default for Handover<T> {
    fn default() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }
}

impl<T> Drop for Handover<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> fmt::Debug for Handover<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handover")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_last_value_is_taken_once() {
        let handover = Handover::default();
        assert!(handover.take().is_none());
        handover.give(Box::new(1));
        handover.give(Box::new(2));
        assert_eq!(handover.take(), Some(Box::new(2)));
        assert!(handover.take().is_none());
    }

    #[test]
    fn a_child_hands_over_whatever_other_threads_were_doing() {
        let handover = Handover::default();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    handover.give(Box::new(1));
                }
            });
            let mut statuses = Vec::new();
            for _ in 0..50 {
                // SAFETY: the child calls only functions of this file and of the C library, which
                // may allocate.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    // SAFETY: no preconditions.
                    unsafe { libc::alarm(5) };
                    handover.give(Box::new(2));
                    let is_own = handover.take() == Some(Box::new(2));
                    // SAFETY: no preconditions.
                    unsafe { libc::_exit(i32::from(!is_own)) };
                }
                let mut status = -1;
                // SAFETY: the child belongs to this thread, and so does `status`.
                unsafe { libc::waitpid(child, &raw mut status, 0) };
                statuses.push(status);
                if status != 0 {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
            let all_well = statuses.iter().all(|&status| status == 0);
            assert!(
                all_well,
                "a child hung, or got the value of another process: {statuses:?}"
            );
        });
    }

    #[test]
    fn every_value_is_freed_whoever_comes_between() {
        const EACH: usize = 1000;
        let value = Arc::new(());
        let handover = Handover::default();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let give = || handover.give(Box::new(Arc::clone(&value)));
                scope.spawn(move || (0..EACH).for_each(|_| give()));
            }
            scope.spawn(|| (0..EACH).for_each(|_| drop(handover.take())));
        });
        handover.give(Box::new(Arc::clone(&value)));
        drop(handover);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
