//! Descriptors that stand for several others in a wait (epoll(7)).

use crate::errno::{check, owned};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::null_mut;
use std::time::Duration;

use super::timespec;

/// A descriptor that is readable while one of those that it watches is ready. Another [`Epoll`] can
/// watch it in turn.
///
/// The kernel knows what is watched by its open file and its number. An entry ends by itself only
/// when all descriptors of that file are closed, those of other processes included.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// Watches nothing yet.
    ///
    /// # Errors
    /// What epoll_create1(2) says.
    pub fn new() -> io::Result<Self> {
        // SAFETY: takes plain numbers.
        owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }).map(Self)
    }

    /// Watches `fd`: for what can be read if it is to be `readable`; for errors and a hang-up in
    /// any case.
    ///
    /// # Errors
    /// `EEXIST` when it is watched, `EPERM` when it can't be, `ENOSPC` above the user's limit, and
    /// what else epoll_ctl(2) says.
    pub fn add(&self, fd: BorrowedFd<'_>, readable: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, readable)
    }

    /// Watches edges: the instance is readable when an event has made `fd` readable, until
    /// [`Epoll::clear`] forgets that event (`EPOLLET`).
    ///
    /// # Errors
    /// As [`Epoll::add`].
    pub fn add_edge(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control_events(libc::EPOLL_CTL_ADD, fd, IN | EDGE)
    }

    /// Forgets the events of [`Epoll::add_edge`] so far.
    ///
    /// # Errors
    /// What epoll_wait(2) says, but for `EINTR`.
    pub fn clear(&self) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; MOST];
        let (epoll, most) = (self.0.as_raw_fd(), c_int::try_from(MOST).unwrap_or(1));
        // SAFETY: the array has room for so many events.
        let rc = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), most, 0) };
        match check(rc) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            cleared => cleared,
        }
    }

    /// Changes what `fd` is watched for.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn set(&self, fd: BorrowedFd<'_>, readable: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, readable)
    }

    /// Ends watching `fd`.
    ///
    /// # Errors
    /// `ENOENT` when it is not watched.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, false)
    }

    /// Whether one of those watched is ready.
    ///
    /// # Errors
    /// What poll(2) says, but for `EINTR`.
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

/// An instance that comes from another process. Watching fails with `EINVAL` if it is none.
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

/// `EPOLLIN` and `EPOLLET`, in the type that events have.
const IN: u32 = 1;
const EDGE: u32 = 1 << 31;

/// Events that are forgotten at once, at most.
const MOST: usize = 32;

/// A descriptor that is readable while one of several sockets is, or after a time (epoll(7)).
#[derive(Debug)]
pub struct AnyOf {
    epoll: Epoll,
    timer: OwnedFd,
}

impl AnyOf {
    /// Whether it is readable.
    ///
    /// # Errors
    /// As [`Epoll::is_ready`].
    pub fn is_ready(&self) -> io::Result<bool> {
        self.epoll.is_ready()
    }

    /// Watches `sockets`, which must be closed after this.
    ///
    /// # Errors
    /// What epoll and timerfd say.
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

    /// Watches one more descriptor, which must be closed after this.
    ///
    /// # Errors
    /// What epoll says.
    pub fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.epoll.add(fd, true)
    }

    /// Its number, for applications to wait on.
    pub fn fd(&self) -> RawFd {
        self.epoll.as_fd().as_raw_fd()
    }

    /// Sets which of some descriptors count from now on, and the time after which the descriptor is
    /// readable anyway. They are of [`AnyOf::new`] or [`AnyOf::add`].
    ///
    /// # Errors
    /// What epoll and timerfd say. One of the descriptors that can't be set keeps no other from it,
    /// nor the time.
    pub fn set<'a>(
        &self,
        watched: impl Iterator<Item = (BorrowedFd<'a>, bool)>,
        after: Option<Duration>,
    ) -> io::Result<()> {
        let mut done = Ok(());
        for (fd, is_watched) in watched {
            done = done.and(self.epoll.set(fd, is_watched));
        }
        // Zero would stop the timer.
        let after = after.map_or(Duration::ZERO, |after| after.max(Duration::from_nanos(1)));
        let timer = libc::itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(after),
        };
        let fd = self.timer.as_raw_fd();
        // SAFETY: the new value is live for the call, and no old one is asked for.
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
        assert!(!outer.is_ready().unwrap(), "not watched for bytes");
        inner.set(first.read.as_fd(), true).unwrap();
        assert!(outer.is_ready().unwrap());
        inner.set(first.read.as_fd(), false).unwrap();
        assert!(!outer.is_ready().unwrap());
        drop(writer);
        assert!(hangs_up(first.read.as_fd()));
        assert!(outer.is_ready().unwrap(), "the hang-up");
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
