//! Counts SIGHUP signals, for services that reload their files after this signal.

use crate::errno::check;
use std::ffi::c_int;
use std::io;
use std::mem;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// How many of the process's SIGHUP signals a thread has noticed.
#[derive(Debug)]
pub struct Hangups {
    noticed: u64,
}

impl Hangups {
    /// Makes SIGHUP increment a counter instead of ending the process. If possible, the kernel
    /// resumes system calls that the signal has interrupted (`SA_RESTART`). A process that calls
    /// [`stop::on_signals`](super::stop::on_signals) must do so before this call, because that
    /// function makes SIGHUP a stop request.
    ///
    /// # Errors
    /// The error of sigaction(2).
    pub fn catch() -> io::Result<Self> {
        // SAFETY: a sigaction is plain data. Zeros are valid: the default action, no flags, no
        // mask.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        let handler: extern "C" fn(c_int) = caught;
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the action is live, and its handler is async-signal-safe.
        check(unsafe { libc::sigaction(libc::SIGHUP, &raw const action, null_mut()) })?;
        Ok(Self {
            noticed: COUNT.load(Ordering::Acquire),
        })
    }

    /// Whether a SIGHUP has arrived since the last call.
    pub fn is_new(&mut self) -> bool {
        let count = COUNT.load(Ordering::Acquire);
        std::mem::replace(&mut self.noticed, count) != count
    }
}

extern "C" fn caught(_: c_int) {
    COUNT.fetch_add(1, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_signal_is_noticed_once() {
        let mut hangups = Hangups::catch().unwrap();
        assert!(!hangups.is_new());
        // SAFETY: raise takes a number; the handler is set.
        assert_eq!(unsafe { libc::raise(libc::SIGHUP) }, 0);
        assert!(hangups.is_new() && !hangups.is_new());
    }
}
