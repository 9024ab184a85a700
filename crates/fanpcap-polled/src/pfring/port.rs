//! The reader's side of a ring: its packets, and the port.

use fanpcap_linux::interface;
use fanpcap_linux::netlink::monitor::LinkMonitor;
use fanpcap_linux::wait::{Epoll, POLLERR, POLLHUP};
use fanpcap_pfring::{Handle, Receiver};
use fanpcap_reader::{GroupTasks, LinkState, Port, PortStatistics, ReadError, TaskResult};
use fanpcap_ring::{Called, Calls, Stamp};
use std::ffi::c_short;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The packets of a ring.
pub(super) struct Packets {
    pub(super) receiver: Receiver,
    pub(super) broken: Broken,
}

/// Why the ring is broken, once it is.
pub(super) type Broken = Arc<OnceLock<io::Error>>;

impl Calls for Packets {
    fn take(&mut self) -> Option<Called<'_>> {
        let received = match self.receiver.receive() {
            Ok(received) => received?,
            Err(error) => {
                // The port reports the first error when the reader waits for packets.
                let _ = self.broken.set(error);
                return None;
            }
        };
        Some(Called {
            wire_len: received.wire_len,
            stamp: Stamp {
                // As the kernel's rings have 32 bits of the seconds.
                seconds: u32::try_from(received.stamp.as_secs()).unwrap_or(u32::MAX),
                nanoseconds: received.stamp.subsec_nanos(),
            },
            is_sent: received.is_sent,
            bytes: received.into_bytes(),
        })
    }
}

/// The port of a ring.
pub(super) struct PfringPort {
    handle: Arc<Handle>,
    /// The ring, which is open as long as the port waits on it.
    _descriptor: OwnedFd,
    /// PF_RING's descriptor tells nothing of a device that goes down or away.
    monitor: LinkMonitor,
    /// Watches the monitor.
    changes: Epoll,
    /// Watches the ring and the monitor.
    epoll: Epoll,
    ifindex: u32,
    broken: Broken,
    /// The counts that were reported so far.
    received: AtomicU64,
    dropped: AtomicU64,
}

impl PfringPort {
    pub(super) fn new(
        handle: Arc<Handle>,
        descriptor: OwnedFd,
        ifindex: u32,
        broken: Broken,
    ) -> io::Result<Self> {
        let (monitor, changes, epoll) = (LinkMonitor::new()?, Epoll::new()?, Epoll::new()?);
        changes.add(monitor.as_fd(), true)?;
        epoll.add(monitor.as_fd(), true)?;
        epoll.add(descriptor.as_fd(), true)?;
        Ok(Self {
            handle,
            _descriptor: descriptor,
            monitor,
            changes,
            epoll,
            ifindex,
            broken,
            received: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }
}

impl Port for PfringPort {
    fn waits_on(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn is_socket(&self) -> bool {
        false
    }

    fn check(&self, found: c_short) -> Result<LinkState, ReadError> {
        if let Some(error) = self.broken.get() {
            let error = io::Error::new(error.kind(), error.to_string());
            return Err(ReadError::new(error));
        }
        let has_changes = self.changes.is_ready().map_err(ReadError::new)?;
        if has_changes {
            self.monitor.clear();
        }
        if has_changes || found & (POLLERR | POLLHUP) != 0 {
            // The reader then asks for the link's state.
            return Ok(LinkState::Down);
        }
        Ok(LinkState::Up)
    }

    fn link(&self) -> Result<LinkState, ReadError> {
        match interface::is_up(self.monitor.as_fd(), self.ifindex) {
            Ok(true) => Ok(LinkState::Up),
            Ok(false) => Ok(LinkState::Down),
            Err(_) => Err(ReadError::of_removed_device()),
        }
    }

    fn poll_error(&self, error: io::Error) -> ReadError {
        ReadError::new(error)
    }

    fn take_statistics(&self) -> io::Result<PortStatistics> {
        let counts = self.handle.counts()?;
        let take = |counted: &AtomicU64, now: u64| {
            let before = counted.fetch_max(now, Ordering::Relaxed);
            now.saturating_sub(before)
        };
        let dropped = take(&self.dropped, counts.dropped);
        Ok(PortStatistics {
            received: take(&self.received, counts.read).saturating_add(dropped),
            dropped,
        })
    }
}

/// The kernel's module does all that is to be done for a group.
pub(super) struct NoTasks;

impl GroupTasks for NoTasks {
    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn attend(&self) -> TaskResult {
        TaskResult::default()
    }

    fn note_down(&self) {}
}
