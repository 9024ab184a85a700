//! Waits for several descriptors, one of which may report signals (signalfd(2)).

use crate::bytes::u32_at;
use crate::errno::{check, owned};
use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read};
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{null, null_mut};
use std::time::Duration;

/// Waits until one of the descriptors is readable, or has an error, or its other end is closed.
/// Without a `limit`, waits for ever. Returns for each descriptor whether this is the case. After a
/// time-out, or after a signal handler has run, returns false for all descriptors.
///
/// # Errors
/// Errors of ppoll(2) other than `EINTR`.
pub fn poll(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut entries: Vec<libc::pollfd> = fds.iter().map(|fd| super::entry(Some(*fd))).collect();
    match super::poll(&mut entries, limit) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(vec![false; fds.len()]),
        result => result.map(|()| entries.iter().map(|entry| entry.revents != 0).collect()),
    }
}

/// Receives signals as data. While this value lives, these signals run no handlers.
#[derive(Debug)]
pub struct Signals {
    file: File,
    before: libc::sigset_t,
}

/// A received signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The signal's number.
    pub signal: c_int,
    /// Whether the kernel sent the signal, as after Ctrl-C on a terminal. False if a process sent
    /// it.
    pub from_kernel: bool,
}

impl Signals {
    /// Blocks these signals for the calling thread and the threads that it starts later, and makes
    /// the signals readable. The process must not have other threads yet. Child processes inherit
    /// the mask, unless [`crate::process::child::bind`] resets it.
    ///
    /// A signal that the process ignores, as under nohup(1), is not blocked, and stays ignored. If
    /// the signal were blocked, the kernel would queue it, and [`Signals::next`] would return it.
    ///
    /// # Errors
    /// The errors of sigprocmask(2), sigaction(2) and signalfd(2).
    pub fn take(signals: &[c_int]) -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset initialises the set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        for &signal in signals {
            if is_ignored(signal)? {
                continue;
            }
            // SAFETY: the set was initialised above.
            check(unsafe { libc::sigaddset(set.as_mut_ptr(), signal) })?;
        }
        let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set is initialised, and the call writes the old set to `before`.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) } {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        // SAFETY: `before` was zeroed, and zeros are a valid set, even if the call fails.
        let before = unsafe { before.assume_init() };
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is initialised, and the call opens a new descriptor.
        let fd = owned(unsafe { libc::signalfd(-1, set.as_ptr(), flags) })?;
        let file = fd.into();
        Ok(Self { file, before })
    }

    /// Returns the next pending signal; `None` if no signal is pending.
    ///
    /// # Errors
    /// The error of read(2).
    pub fn next(&self) -> io::Result<Option<Arrived>> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        match (&self.file).read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            result => result?,
        };
        let word = |at| {
            let word = u32_at(&bytes, at).unwrap_or_default();
            c_int::from_ne_bytes(word.to_ne_bytes())
        };
        Ok(Some(Arrived {
            signal: word(offset_of!(libc::signalfd_siginfo, ssi_signo)),
            from_kernel: word(offset_of!(libc::signalfd_siginfo, ssi_code)) == SI_KERNEL,
        }))
    }
}

/// Gives a signal its default action, if the process ignores the signal. A shell script starts each
/// command that ends with `&` with SIGINT and SIGQUIT ignored.
///
/// # Errors
/// The errors of sigaction(2).
pub fn heed(signal: c_int) -> io::Result<()> {
    if is_ignored(signal)? {
        // SAFETY: the default action is no handler.
        let before = unsafe { libc::signal(signal, libc::SIG_DFL) };
        if before == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn is_ignored(signal: c_int) -> io::Result<bool> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the call sets no new action, and writes the old action to live memory.
    check(unsafe { libc::sigaction(signal, null(), action.as_mut_ptr()) })?;
    // SAFETY: `action` was zeroed, and zeros are a valid value.
    let action = unsafe { action.assume_init() };
    Ok(action.sa_sigaction == libc::SIG_IGN)
}

impl Drop for Signals {
    fn drop(&mut self) {
        while let Ok(Some(_)) = self.next() {}
        // SAFETY: `before` is the mask that the thread had before `take`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, null_mut());
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// asm-generic/siginfo.h: the kernel sent the signal.
const SI_KERNEL: c_int = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_comes_once_with_its_origin() {
        // Uses a new thread, because a signal mask ends with its thread.
        let body = || {
            let signals = Signals::take(&[libc::SIGUSR1]).unwrap();
            assert_eq!(signals.next().unwrap(), None);
            // SAFETY: the signal is sent to this thread, which has blocked it.
            unsafe { libc::raise(libc::SIGUSR1) };
            assert_eq!(poll(&[signals.as_fd()], None).unwrap(), [true]);
            let arrived = Arrived {
                signal: libc::SIGUSR1,
                from_kernel: false,
            };
            assert_eq!(signals.next().unwrap(), Some(arrived));
            assert_eq!(signals.next().unwrap(), None);
            // SAFETY: this thread has blocked the signal. The drop must read the signal before it
            // unblocks the signal, because the signal would end the process.
            unsafe { libc::raise(libc::SIGUSR1) };
            drop(signals);
        };
        std::thread::spawn(body).join().unwrap();
    }

    #[test]
    fn an_ignored_signal_is_not_taken() {
        let body = || {
            // SAFETY: the call sets no handler, and no other test uses this signal.
            unsafe { libc::signal(libc::SIGWINCH, libc::SIG_IGN) };
            let signals = Signals::take(&[libc::SIGWINCH]).unwrap();
            // SAFETY: the signal is ignored.
            unsafe { libc::raise(libc::SIGWINCH) };
            assert_eq!(signals.next().unwrap(), None);
            drop(signals);
            heed(libc::SIGWINCH).unwrap();
            let signals = Signals::take(&[libc::SIGWINCH]).unwrap();
            // SAFETY: this thread has blocked the signal.
            unsafe { libc::raise(libc::SIGWINCH) };
            assert!(signals.next().unwrap().is_some());
        };
        std::thread::spawn(body).join().unwrap();
    }
}
