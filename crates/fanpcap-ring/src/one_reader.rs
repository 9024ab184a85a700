//! State that only the thread that reads touches.

use std::cell::UnsafeCell;
use std::fmt;

/// A value without a lock, for one thread at a time: libpcap's rule for who reads a handle. There
/// is nothing that could stay locked when a program leaves a read by longjmp(3) or forks during
/// one.
pub struct OneReader<T>(UnsafeCell<T>);

// SAFETY: only get() gives access, and its callers promise to be alone.
unsafe impl<T: Send> Sync for OneReader<T> {}

impl<T> OneReader<T> {
    /// Holds a value.
    pub fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// The value.
    ///
    /// # Safety
    /// What an earlier call returned is not used any more.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "the caller promises that there is one only"
    )]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller vouches for it.
        unsafe { &mut *self.0.get() }
    }
}

impl<T> fmt::Debug for OneReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneReader")
    }
}
