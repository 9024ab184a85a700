//! Values that the threads of a handle share without a lock. A lock could stay locked if a signal
//! handler or an application left a call by longjmp(3), or in a child process that another thread
//! forks during that call.

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Room for one boxed value, which any thread hands over to the reading thread.
pub struct Handover<T>(AtomicPtr<T>);

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
    fn swap(&self, value: Option<Box<T>>) -> Option<Box<T>> {
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

/// A boxed value, or none, which one thread replaces while other threads use it. A replaced value
/// stays alive until the value after it is replaced.
pub struct Renewable<T> {
    now: Handover<T>,
    before: Handover<T>,
}

// Threads share references to the value, so without `Sync` this type has no functions.
impl<T: Send + Sync> Renewable<T> {
    /// Holds `value`.
    pub fn new(value: Option<Box<T>>) -> Self {
        let [now, before] = [Handover::default(), Handover::default()];
        now.swap(value);
        Self { now, before }
    }

    /// The present value.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: the value lives until two calls of `replace` later. The caller of `replace`
        // promises that nobody uses this reference then.
        unsafe { self.now.0.load(Ordering::Acquire).as_ref() }
    }

    /// Sets the value if there is none. Returns false, and drops `value`, if there is one.
    pub fn fill(&self, value: Box<T>) -> bool {
        let (now, new) = (&self.now.0, Box::into_raw(value));
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let filled = now.compare_exchange(null_mut(), new, order.0, order.1);
        if filled.is_err() {
            // SAFETY: the box was leaked above, and no other thread has seen it.
            drop(unsafe { Box::from_raw(new) });
        }
        filled.is_ok()
    }

    /// Replaces the value.
    ///
    /// # Safety
    /// One thread at a time calls this function. No thread still uses a reference that
    /// [`Renewable::get`] returned before the last call.
    pub unsafe fn replace(&self, value: Option<Box<T>>) {
        drop(self.before.swap(self.now.swap(value)));
    }
}

/// A value that only one thread at a time may use. libpcap requires the same of the threads that
/// read a handle.
pub struct OneReader<T>(UnsafeCell<T>);

// SAFETY: only `get` gives access, and its callers promise that no other thread has it.
unsafe impl<T: Send> Sync for OneReader<T> {}

impl<T> OneReader<T> {
    /// Returns a holder of this value.
    pub fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Returns a reference to the value. No other reference may be in use.
    ///
    /// # Safety
    /// No thread still uses a reference that an earlier call returned.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the caller promises that it is alone")]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller promises that no other reference is in use.
        unsafe { &mut *self.0.get() }
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

    #[test]
    fn a_value_lives_until_the_next_one_is_replaced() {
        let values: Vec<Arc<u32>> = (0..4).map(Arc::new).collect();
        let count = |at: usize| Arc::strong_count(&values[at]);
        let held = Renewable::new(None);
        assert!(held.get().is_none() && held.fill(Box::new(Arc::clone(&values[0]))));
        assert!(!held.fill(Box::new(Arc::clone(&values[3]))) && count(3) == 1);
        let first = held.get().unwrap();
        // SAFETY: this thread is the only one.
        unsafe { held.replace(Some(Box::new(Arc::clone(&values[1])))) };
        assert_eq!((**first, count(0)), (0, 2));
        // SAFETY: as above, and `first` is not used any more.
        unsafe { held.replace(None) };
        assert_eq!((count(0), count(1)), (1, 2));
        assert!(held.get().is_none() && held.fill(Box::new(Arc::clone(&values[2]))));
        drop(held);
        assert_eq!((count(1), count(2)), (1, 1));
    }
}
