//! Descriptors that combine several other descriptors in one wait (epoll(7)).

use crate::errno::{check, owned};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::time::Duration;

use super::timespec;

/// A descriptor that is readable while one of its watched descriptors is ready. An [`Epoll`] can
/// also watch another [`Epoll`].
///
/// The kernel identifies a watched descriptor by its open file description and its number. To close
/// the descriptor is not enough to end the watching: without [`Epoll::remove`], the kernel watches
/// until all descriptors of the open file description are closed, also in other processes.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// Creates an instance that watches no descriptor.
    ///
    /// # Errors
    /// The error of epoll_create1(2).
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes plain numbers.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Self)
    }

    /// Watches `fd` for errors and a hang-up. With `readable`, also watches for data to read.
    ///
    /// # Errors
    /// `EEXIST` when `fd` is already watched, `EPERM` when its kind can't be watched, `ENOSPC`
    /// above the user's limit, and other errors of epoll_ctl(2).
    pub fn add(&self, fd: BorrowedFd<'_>, readable: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, readable)
    }

    /// Watches `fd` for edges (`EPOLLET`). Each event that makes `fd` readable also makes the
    /// instance readable. The instance stays readable until [`Epoll::clear`].
    ///
    /// # Errors
    /// As [`Epoll::add`].
    pub fn add_edge(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control_events(libc::EPOLL_CTL_ADD, fd, IN | EDGE)
    }

    /// Clears the past events of descriptors that [`Epoll::add_edge`] watches.
    ///
    /// # Errors
    /// The error of epoll_wait(2), except `EINTR`.
    pub fn clear(&self) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let (epoll, most) = (self.0.as_raw_fd(), c_int::try_from(MOST).unwrap_or(1));
        // SAFETY: the array has room for `most` events.
        let rc = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), most, 0) };
        match check(rc) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            cleared => cleared,
        }
    }

    /// Changes the events for which `fd` is watched; see [`Epoll::add`].
    ///
    /// # Errors
    /// `ENOENT` when `fd` is not watched.
    pub fn set(&self, fd: BorrowedFd<'_>, readable: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, readable)
    }

    /// Stops watching `fd`.
    ///
    /// # Errors
    /// `ENOENT` when `fd` is not watched.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, false)
    }

    /// Whether one of the watched descriptors is ready.
    ///
    /// # Errors
    /// The error of poll(2), except `EINTR`.
    pub fn is_ready(&self) -> io::Result<bool> {
        Ok(super::state(self.as_fd())? & libc::POLLIN != 0)
    }

    fn control(&self, operation: c_int, fd: BorrowedFd<'_>, readable: bool) -> io::Result<()> {
        self.control_events(operation, fd, if readable { IN } else { 0 })
    }

    fn control_events(&self, operation: c_int, fd: BorrowedFd<'_>, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: 0 };
        let (epoll, fd) = (self.0.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: both descriptors are open and the event is live for the call.
        check(unsafe { libc::epoll_ctl(epoll, operation, fd, &raw mut event) })
    }
}

/// Makes an [`Epoll`] of a descriptor that comes from another process. If the descriptor is not an
/// epoll instance, [`Epoll::add`] fails with `EINVAL`.
impl From<OwnedFd> for Epoll {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `EPOLLIN` and `EPOLLET`, in the type of an event's field.
const IN: u32 = 1;
const EDGE: u32 = 1 << 31;

/// The most events that one call clears.
const MOST: usize = 32;

/// A descriptor that is readable while one of several sockets is readable, or after a given time
/// (epoll(7)).
#[derive(Debug)]
pub struct AnyOf {
    epoll: Epoll,
    timer: OwnedFd,
}

impl AnyOf {
    /// Whether the descriptor is readable.
    ///
    /// # Errors
    /// As [`Epoll::is_ready`].
    pub fn is_ready(&self) -> io::Result<bool> {
        self.epoll.is_ready()
    }

    /// Watches `sockets`. The caller must not close them before this value is dropped.
    ///
    /// # Errors
    /// The errors of epoll and timerfd.
    pub fn new<'a>(sockets: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: takes plain numbers.
        let timer = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        epoll.add(timer.as_fd(), true)?;
        for socket in sockets {
            epoll.add(socket, true)?;
        }
        Ok(Self { epoll, timer })
    }

    /// Watches one more descriptor. The caller must not close it before this value is dropped.
    ///
    /// # Errors
    /// The error of epoll.
    pub fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.epoll.add(fd, true)
    }

    /// Stops watching a descriptor, which the caller may then close.
    ///
    /// # Errors
    /// The error of epoll.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.epoll.remove(fd)
    }

    /// Returns the descriptor on which applications wait.
    pub fn fd(&self) -> RawFd {
        self.epoll.as_fd().as_raw_fd()
    }

    /// Sets for each descriptor in `watched` whether it is watched from now on. The descriptors
    /// must be from [`AnyOf::new`] or [`AnyOf::add`]. If `after` is given, `self` becomes readable
    /// after this time, even if no descriptor is ready.
    ///
    /// # Errors
    /// The errors of epoll and timerfd. If one descriptor can't be set, the other descriptors and
    /// the time are still set.
    pub fn set<'a>(
        &self,
        watched: impl Iterator<Item = (BorrowedFd<'a>, bool)>,
        after: Option<Duration>,
    ) -> io::Result<()> {
        let mut done = Ok(());
        for (fd, is_watched) in watched {
            done = done.and(self.epoll.set(fd, is_watched));
        }
        // A time of zero stops the timer, so `Some(0)` becomes a nanosecond.
        let after = after.map_or(Duration::ZERO, |after| after.max(Duration::from_nanos(1)));
        let timer = libc::itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(after),
        };
        let fd = self.timer.as_raw_fd();
        // SAFETY: the new value is live for the call. The call writes no old value.
        let set = check(unsafe { libc::timerfd_settime(fd, 0, &raw const timer, null_mut()) });
        done.and(set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::pipe::{Pipe, hangs_up};
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn an_instance_is_ready_while_one_that_it_watches_is() {
        let [first, second] = [Pipe::new().unwrap(), Pipe::new().unwrap()];
        let [inner, outer] = [Epoll::new().unwrap(), Epoll::new().unwrap()];
        inner.add(first.read.as_fd(), false).unwrap();
        inner.add(second.read.as_fd(), true).unwrap();
        outer.add(inner.as_fd(), true).unwrap();
        assert!(!outer.is_ready().unwrap());
        let mut writer = File::from(first.write);
        writer.write_all(b"x").unwrap();
        assert!(!outer.is_ready().unwrap(), "a byte made it ready");
        inner.set(first.read.as_fd(), true).unwrap();
        assert!(outer.is_ready().unwrap());
        inner.set(first.read.as_fd(), false).unwrap();
        assert!(!outer.is_ready().unwrap());
        drop(writer);
        assert!(hangs_up(first.read.as_fd()));
        assert!(
            outer.is_ready().unwrap(),
            "the hang-up did not make it ready"
        );
        inner.remove(first.read.as_fd()).unwrap();
        assert!(!outer.is_ready().unwrap());
        let gone = inner.remove(first.read.as_fd()).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ENOENT));
        drop(second.write);
        assert!(hangs_up(second.read.as_fd()));
        assert!(outer.is_ready().unwrap());
    }

    #[test]
    fn the_time_is_set_also_where_a_descriptor_is_not_watched() {
        let [pipe, other] = [Pipe::new().unwrap(), Pipe::new().unwrap()];
        let any = AnyOf::new([pipe.read.as_fd()].into_iter()).unwrap();
        let both = [(other.read.as_fd(), true), (pipe.read.as_fd(), false)];
        let set = any.set(both.into_iter(), Some(Duration::ZERO));
        assert_eq!(set.unwrap_err().raw_os_error(), Some(libc::ENOENT));
        let end = std::time::Instant::now() + Duration::from_secs(2);
        while !any.is_ready().unwrap() {
            assert!(std::time::Instant::now() < end);
        }
    }
}
