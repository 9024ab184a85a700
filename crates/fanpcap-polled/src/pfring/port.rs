//! The reader's side of a ring: its packets, and the port.

use fanpcap_linux::interface;
use fanpcap_linux::wait::{POLLERR, POLLHUP};
use fanpcap_pfring::{Handle, Receiver};
use fanpcap_reader::{GroupTasks, LinkState, Port, PortStatistics, ReadError, TaskResult};
use fanpcap_ring::{Called, Calls, Stamp};
use std::ffi::c_short;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The packets of a ring.
pub(super) struct Packets(pub(super) Receiver);

impl Calls for Packets {
    fn take(&mut self) -> Option<Called<'_>> {
        // A ring that is broken has no packets: the port reports the reason.
        let received = self.0.receive().ok()??;
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
    descriptor: OwnedFd,
    ifindex: u32,
    /// The counts that were reported so far.
    received: AtomicU64,
    dropped: AtomicU64,
}

impl PfringPort {
    pub(super) fn new(handle: Arc<Handle>, descriptor: OwnedFd, ifindex: u32) -> Self {
        Self {
            handle,
            descriptor,
            ifindex,
            received: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }
}

impl Port for PfringPort {
    fn waits_on(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    fn is_socket(&self) -> bool {
        false
    }

    fn check(&self, found: c_short) -> Result<LinkState, ReadError> {
        match found & (POLLERR | POLLHUP) {
            0 => Ok(LinkState::Up),
            // The reader then asks for the link's state.
            _ => Ok(LinkState::Down),
        }
    }

    fn link(&self) -> Result<LinkState, ReadError> {
        match interface::is_up(self.descriptor.as_fd(), self.ifindex) {
            Ok(true) => Ok(LinkState::Up),
            Ok(false) => Ok(LinkState::Down),
            Err(error) => Err(ReadError::of_gone(error)),
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
