//! Makes SIGINT, SIGTERM and SIGHUP set a flag, for commands that shut down cleanly. These signals
//! also end a wait by [`wait()`].

use crate::errno::check;
use crate::wait::clock;
use crate::wait::{self, Wake};
use std::ffi::c_int;
use std::io;
use std::mem;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

static REQUESTED: AtomicBool = AtomicBool::new(false);
/// The last signal that was caught; 0 before the first signal.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// The time of the first stop request, by [`clock::process_ns`]; 0 before that request.
static SINCE_NS: AtomicU64 = AtomicU64::new(0);
static INSISTED: AtomicBool = AtomicBool::new(false);
static WAKE: OnceLock<Wake> = OnceLock::new();

/// Makes SIGINT, SIGTERM and SIGHUP set the returned flag instead of ending the process. System
/// calls that these signals interrupt fail with `EINTR` (no `SA_RESTART`). A signal that was
/// ignored when the process started, as under nohup(1) and in shells, stays ignored.
///
/// # Errors
/// The errors of eventfd(2) and sigaction(2).
pub fn on_signals() -> io::Result<&'static AtomicBool> {
    if WAKE.get().is_none() {
        // If another thread has set its value first, that value stays.
        let _ = WAKE.set(Wake::new()?);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        catch(signal)?;
    }
    Ok(&REQUESTED)
}

/// Whether a stop was requested, by a signal or by [`request`].
pub fn is_requested() -> bool {
    REQUESTED.load(Ordering::Acquire)
}

/// Returns the signal that requested the stop; `None` if no signal requested a stop.
pub fn signal() -> Option<u8> {
    let number = u8::try_from(SIGNAL.load(Ordering::Relaxed)).ok();
    number.filter(|&signal| signal > 0)
}

/// Whether a second signal has arrived, after which the command should skip all steps that take
/// long. Signals within a fifth of a second after the first stop request do not count as a second
/// signal, because timeout(1) and terminals signal both the process and its group.
pub fn is_insisted() -> bool {
    INSISTED.load(Ordering::Acquire)
}

/// Requests a stop as a signal does. Async-signal-safe.
pub fn request() {
    let now = clock::process_ns();
    // Only the first request stores its time.
    let _ = SINCE_NS.compare_exchange(0, now, Ordering::AcqRel, Ordering::Relaxed);
    REQUESTED.store(true, Ordering::Release);
    if let Some(wake) = WAKE.get() {
        wake.signal();
    }
}

/// Waits for a stop request, at most for `limit`. Returns whether a stop was requested. Only one
/// thread may wait.
///
/// # Errors
/// The error of poll(2), except `EINTR`.
pub fn wait(limit: Duration) -> io::Result<bool> {
    if !is_requested() {
        match wait::wait(None, WAKE.get(), Some(limit)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(is_requested())
}

/// A signal within this time after the first stop request does not count as a second signal.
const SAME_NS: u64 = 200_000_000;

fn catch(signal: c_int) -> io::Result<()> {
    // SAFETY: a sigaction is plain data. Zeros are valid: the default action, no flags, no mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: the call writes the old action to live memory, and sets no new action.
    check(unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) })?;
    if action.sa_sigaction == libc::SIG_IGN {
        return Ok(());
    }
    // SAFETY: zeros are a valid sigaction.
    action = unsafe { mem::zeroed() };
    let handler: extern "C" fn(c_int) = caught;
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the action is live, and its handler is async-signal-safe.
    check(unsafe { libc::sigaction(signal, &raw const action, null_mut()) })
}

extern "C" fn caught(signal: c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
    let since = SINCE_NS.load(Ordering::Acquire);
    if since > 0 && clock::process_ns().saturating_sub(since) > SAME_NS {
        INSISTED.store(true, Ordering::Release);
    }
    request();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All checks are in a single test, because the flag belongs to the process.
    #[test]
    fn a_signal_sets_the_flag_and_ends_the_wait() {
        let flag = on_signals().unwrap();
        assert!(!flag.load(Ordering::Acquire) && signal().is_none());
        assert!(!wait(Duration::from_millis(1)).unwrap());
        // SAFETY: raise takes a number; the handler is set.
        assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
        assert!(flag.load(Ordering::Acquire));
        assert_eq!(signal().map(i32::from), Some(libc::SIGTERM));
        assert!(wait(Duration::from_secs(3600)).unwrap());
        // SAFETY: as above.
        assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
        assert!(!is_insisted());
        std::thread::sleep(Duration::from_millis(250));
        assert!(!is_insisted());
        // SAFETY: as above.
        assert_eq!(unsafe { libc::raise(libc::SIGINT) }, 0);
        assert!(is_insisted());
    }
}
