//! Tells when a network device has appeared, changed or disappeared (rtnetlink(7), `RTMGRP_LINK`).

use crate::errno::check;
use crate::netlink::{self, ANSWER_LEN};
use crate::option::socklen;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Changes of the devices in the network namespace of the thread that made the monitor.
#[derive(Debug)]
pub struct LinkMonitor(OwnedFd);

impl LinkMonitor {
    /// A monitor of the changes from now on.
    ///
    /// # Errors
    /// The errors of socket(2) and bind(2).
    pub fn new() -> io::Result<Self> {
        let netlink = netlink::open(libc::NETLINK_ROUTE)?;
        // SAFETY: any bits are a valid sockaddr_nl.
        let mut address: libc::sockaddr_nl = unsafe { mem::zeroed() };
        address.nl_family = libc::sa_family_t::try_from(libc::AF_NETLINK).unwrap_or(0);
        address.nl_groups = libc::RTMGRP_LINK.unsigned_abs();
        let len = socklen::<libc::sockaddr_nl>();
        // SAFETY: `address` is a whole sockaddr_nl of `len` bytes, live for the call.
        check(unsafe { libc::bind(netlink.as_raw_fd(), (&raw const address).cast(), len) })?;
        Ok(Self(netlink))
    }

    /// Discards the notifications that have come, so that the descriptor is no longer readable. The
    /// caller looks at the devices afterwards.
    pub fn clear(&self) {
        let mut notification = vec![0; ANSWER_LEN];
        // If notifications were lost (ENOBUFS), the next call reads on.
        for _ in 0..NOTIFICATIONS_MAX {
            match netlink::receive(&self.0, &mut notification, libc::MSG_DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    }
}

impl AsFd for LinkMonitor {
    /// The descriptor is readable while notifications are unread.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The most notifications that [`LinkMonitor::clear`] discards, so that it ends while devices
/// change all the time.
const NOTIFICATIONS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::events;
    use std::time::Duration;

    #[test]
    fn a_monitor_without_news_is_not_readable() {
        let monitor = LinkMonitor::new().unwrap();
        monitor.clear();
        let found = events::poll(&[monitor.as_fd()], Some(Duration::ZERO)).unwrap();
        assert_eq!(found.len(), 1);
    }
}
