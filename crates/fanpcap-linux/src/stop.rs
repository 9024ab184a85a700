//! Signals that ask a program to end, kept as a flag for it to look at: a terminal wants to be restored first.

use crate::errno::check;
use std::ffi::c_int;
use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// The last signal that arrived; 0: none.
static ASKED: AtomicI32 = AtomicI32::new(0);

/// From here on `SIGINT`, `SIGTERM` and `SIGHUP` do not end the process but are told by [`asked`].
///
/// # Errors
/// What sigaction(2) says.
pub fn listen() -> io::Result<()> {
    let note: extern "C" fn(c_int) = note;
    // SAFETY: a sigaction is plain data, for which zeros are a value: no flags, nothing blocked.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = note as libc::sighandler_t;
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: `action` is live, and its handler does nothing but store a number.
        check(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) })?;
    }
    Ok(())
}

/// The number of the signal that asked the process to end, if one did since [`listen`].
pub fn asked() -> Option<u8> {
    // Relaxed: the number is all that is told.
    u8::try_from(ASKED.load(Ordering::Relaxed))
        .ok()
        .filter(|&signal| signal > 0)
}

extern "C" fn note(signal: c_int) {
    ASKED.store(signal, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_signal_is_told_and_the_process_goes_on() {
        super::listen().unwrap();
        assert_eq!(super::asked(), None);
        // SAFETY: raise takes a plain number; the handler is ours.
        unsafe { libc::raise(libc::SIGTERM) };
        assert_eq!(super::asked().map(i32::from), Some(libc::SIGTERM));
    }
}
