//! Waits for packets at packet sockets. Another thread or a signal handler can end such a wait.

mod epoll;
pub mod clock;
pub mod events;
pub mod hangup;
pub mod pipe;
pub mod stop;

use crate::errno::{check, owned};
use crate::option::get;
use std::ffi::{c_int, c_short, c_void};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null;
use std::time::Duration;

pub use epoll::{AnyOf, Epoll};
pub use libc::{ENETDOWN, ENODEV, ENXIO};
pub use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLRDHUP};

/// Wakes a waiting thread, from any thread or signal handler (eventfd(2)).
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// Creates the eventfd.
    ///
    /// # Errors
    /// `EMFILE` and other errors of eventfd(2).
    pub fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes plain numbers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        owned(fd).map(Self)
    }

    /// Ends the thread's current wait; if the thread does not wait now, ends its next wait.
    /// Async-signal-safe; preserves errno.
    pub fn signal(&self) {
        let one: u64 = 1;
        // SAFETY: the call has no preconditions. The address is that of the calling thread's errno.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: `errno` is valid for the thread's life.
        let before = unsafe { *errno };
        // SAFETY: the source is the 8 bytes of `one`. If the counter is full, it wakes the thread
        // anyway.
        unsafe {
            libc::write(
                self.0.as_raw_fd(),
                (&raw const one).cast(),
                size_of::<u64>(),
            )
        };
        // SAFETY: `errno` is valid for the thread's life.
        unsafe { *errno = before };
    }

    /// Clears the effect of all earlier calls of [`Wake::signal`]. Returns whether there was any.
    pub fn clear(&self) -> bool {
        let mut count: u64 = 0;
        let target: *mut c_void = (&raw mut count).cast();
        // SAFETY: the target is the 8 bytes of `count`. If the counter is 0, the read fails without
        // effect.
        let len = unsafe { libc::read(self.0.as_raw_fd(), target, size_of::<u64>()) };
        len > 0
    }
}

/// The eventfd, which is readable from [`Wake::signal`] to [`Wake::clear`].
impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The events that ended a wait; all fields are empty after a time-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Woken {
    /// The events of the socket, such as `POLLIN` and `POLLERR`.
    pub socket: c_short,
    /// [`Wake::signal`] was called.
    pub signalled: bool,
    /// The second descriptor is readable, or the other end of the second descriptor is closed.
    pub called: bool,
}

/// Waits for packets or an error on `socket`, or for `wake`. Without a `limit`, waits for ever.
///
/// # Errors
/// `EINTR` after a signal handler has run, and other errors of poll(2).
pub fn wait(
    socket: Option<BorrowedFd<'_>>,
    wake: Option<&Wake>,
    limit: Option<Duration>,
) -> io::Result<Woken> {
    wait_for_two(socket, None, wake, limit)
}

/// Waits as [`wait`] does, for the socket and a second descriptor.
///
/// # Errors
/// As [`wait`].
pub fn wait_for_two(
    socket: Option<BorrowedFd<'_>>,
    second: Option<BorrowedFd<'_>>,
    wake: Option<&Wake>,
    limit: Option<Duration>,
) -> io::Result<Woken> {
    let wake = wake.map(|wake| wake.0.as_fd());
    let mut entries = [entry(socket), entry(wake), entry(second)];
    poll(&mut entries, limit)?;
    let [socket, wake, second] = entries.map(|entry| entry.revents);
    Ok(Woken {
        socket,
        signalled: wake & libc::POLLIN != 0,
        called: second != 0,
    })
}

/// Waits as [`wait`] does, for several sockets. Ignores elements that are `None`. Returns the
/// events of each socket, and whether [`Wake::signal`] was called.
///
/// # Errors
/// As [`wait`].
pub fn wait_for_any<'a>(
    sockets: impl Iterator<Item = Option<BorrowedFd<'a>>>,
    wake: Option<&Wake>,
    limit: Option<Duration>,
) -> io::Result<(Vec<c_short>, bool)> {
    let mut entries: Vec<libc::pollfd> = sockets.map(entry).collect();
    entries.push(entry(wake.map(|wake| wake.0.as_fd())));
    poll(&mut entries, limit)?;
    let mut found: Vec<c_short> = entries.iter().map(|entry| entry.revents).collect();
    let signalled = found.pop().is_some_and(|woken| woken & libc::POLLIN != 0);
    Ok((found, signalled))
}

/// Whether an error is pending at a socket, for example because its device went down. The error
/// stays pending.
///
/// # Errors
/// The error of poll(2), except `EINTR`.
pub fn has_error(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(state(fd)? & libc::POLLERR != 0)
}

/// Returns the present events of `fd`, by poll(2).
fn state(fd: BorrowedFd<'_>) -> io::Result<c_short> {
    loop {
        match wait(Some(fd), None, Some(Duration::ZERO)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            woken => return woken.map(|woken| woken.socket),
        }
    }
}

/// Returns the entry of `fd` for ppoll(2). For `None`, the entry has a negative descriptor, which
/// ppoll(2) ignores.
fn entry(fd: Option<BorrowedFd<'_>>) -> libc::pollfd {
    libc::pollfd {
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events: libc::POLLIN,
        revents: 0,
    }
}

/// ppoll(2), without a signal mask.
fn poll(entries: &mut [libc::pollfd], limit: Option<Duration>) -> io::Result<()> {
    let limit = limit.map(timespec);
    let limit = limit.as_ref().map_or(null(), std::ptr::from_ref);
    let count = libc::nfds_t::try_from(entries.len()).unwrap_or(libc::nfds_t::MAX);
    // SAFETY: the array has `count` entries. The limit is null or a live timespec. The signal mask
    // is null.
    check(unsafe { libc::ppoll(entries.as_mut_ptr(), count, limit, null()) })
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Takes a socket's pending error (`SO_ERROR`); `None` if no error is pending.
///
/// # Errors
/// The error of getsockopt(2).
pub fn take_error(socket: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    let error: c_int = get(socket, libc::SOL_SOCKET, libc::SO_ERROR)?;
    Ok((error != 0).then(|| io::Error::from_raw_os_error(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_given_before_ends_the_wait_once() {
        let wake = Wake::new().unwrap();
        wake.signal();
        wake.signal();
        assert!(wait(None, Some(&wake), None).unwrap().signalled);
        wake.clear();
        let nothing = wait(None, Some(&wake), Some(Duration::from_millis(1)));
        assert_eq!(nothing.unwrap(), Woken::default());
        wake.clear();
    }
}
