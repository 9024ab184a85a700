//! State that only the reading thread uses.

use std::cell::UnsafeCell;
use std::fmt;

/// A value without a lock, which only one thread at a time may use. libpcap requires the same of
/// the threads that read a handle. A lock could stay locked if an application left a read by
/// longjmp(3), or forked during a read.
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
    #[expect(
        clippy::mut_from_ref,
        reason = "the caller promises that there is one only"
    )]
    pub unsafe fn get(&self) -> &mut T {
        // SAFETY: the caller promises that no other reference is in use.
        unsafe { &mut *self.0.get() }
    }
}

impl<T> fmt::Debug for OneReader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneReader")
    }
}
