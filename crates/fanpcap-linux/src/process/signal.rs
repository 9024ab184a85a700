//! Defers interruptions of the calling thread: signals (pthread_sigmask(3)) and cancellation
//! (pthread_cancel(3)).

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

unsafe extern "C" {
    safe fn pthread_setcancelstate(state: c_int, before: Option<&mut c_int>) -> c_int;
    safe fn pthread_setcanceltype(kind: c_int, before: Option<&mut c_int>) -> c_int;
}

/// pthread.h, `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = 1;

/// pthread.h, `PTHREAD_CANCEL_DEFERRED`.
const CANCEL_DEFERRED: c_int = 0;

/// Defers the cancellation of the thread until this value is dropped. glibc cancels a thread by
/// unwinding its stack. If this unwinding reached a Rust frame that catches panics, the process
/// would abort.
#[derive(Debug)]
pub struct Uncancelled {
    before: c_int,
}

impl Uncancelled {
    /// Defers cancellation. Also changes the thread's cancellation type to deferred, so that the
    /// thread can be cancelled only at cancellation points. With the asynchronous type,
    /// pthread_setcancelstate(3) would cancel the thread when this value is dropped. At that time,
    /// the stack has frames that can't be unwound.
    pub fn new() -> Self {
        let mut before = 0;
        pthread_setcancelstate(CANCEL_DISABLE, Some(&mut before));
        pthread_setcanceltype(CANCEL_DEFERRED, None);
        Self { before }
    }
}

impl Default for Uncancelled {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        pthread_setcancelstate(self.before, None);
    }
}

/// Blocks signals and cancellation of this thread until this value is dropped. The C library does
/// not let a thread block its internal signals.
#[derive(Debug)]
pub struct Blocked {
    before: libc::sigset_t,
    /// Declared last, so that it is dropped last.
    _cancelled_later: Uncancelled,
}

impl Blocked {
    /// Blocks all signals, and defers cancellation.
    pub fn new() -> Self {
        let cancelled_later = Uncancelled::new();
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: sigfillset initialises the set.
        unsafe { libc::sigfillset(all.as_mut_ptr()) };
        // SAFETY: `all` was initialised above, and the call writes `before`.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: `before` was zeroed, and zeros are a valid set, even if the call fails.
        let before = unsafe { before.assume_init() };
        Self {
            before,
            _cancelled_later: cancelled_later,
        }
    }
}

impl Default for Blocked {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: `before` is the mask that the thread had before `new`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}
