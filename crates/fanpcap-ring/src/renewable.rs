//! A value that one thread replaces while other threads use it.

use crate::handover::Handover;
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

/// A boxed value, or none, without a lock (see [`Handover`]). A replaced value stays alive until
/// the value after it is replaced.
#[derive(Debug)]
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

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
