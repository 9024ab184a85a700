//! The reader's side of a ring: its packets, and the port.

use fanpcap_linux::interface;
use fanpcap_linux::wait::{POLLERR, POLLHUP};
use fanpcap_pfring::{Handle, Receiver};
use fanpcap_reader::{GroupTasks, LinkState, Port, PortStatistics, ReadError, TaskResult};
use fanpcap_ring::{Called, Calls, Stamp};
use std::ffi::c_short;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Why a ring is broken, once it is.
pub(super) type Broken = Arc<OnceLock<io::Error>>;

/// The packets of a ring.
pub(super) struct Packets {
    pub(super) receiver: Receiver,
    pub(super) broken: Broken,
}

impl Calls for Packets {
    fn take(&mut self) -> Option<Called<'_>> {
        let received = match self.receiver.receive() {
            Ok(received) => received?,
            Err(error) => {
                // The port reports the error when the tasks ask it for the link's state.
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
    descriptor: OwnedFd,
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
    ) -> Self {
        Self {
            handle,
            descriptor,
            ifindex,
            broken,
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
        if let Some(error) = self.broken.get() {
            return Err(ReadError::new(io::Error::new(
                error.kind(),
                error.to_string(),
            )));
        }
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

/// Looks whether the device is there. The kernel's module does all that is to be done for a group,
/// but it wakes nobody when the device is removed, and reports no error.
pub(super) struct Watch {
    pub(super) ifindex: u32,
    pub(super) broken: Broken,
}

/// The interval between two looks.
const LOOK: Duration = Duration::from_secs(1);

impl GroupTasks for Watch {
    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn attend(&self) -> TaskResult {
        let is_gone = || interface::find_name(self.ifindex).is_ok_and(|name| name.is_none());
        TaskResult {
            latest: Some(LOOK),
            is_lost: self.broken.get().is_some() || is_gone(),
            ..TaskResult::default()
        }
    }

    fn note_down(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_device_and_a_broken_ring_are_found() {
        let watch = |ifindex| Watch {
            ifindex,
            broken: Broken::default(),
        };
        let loopback = interface::index("lo").unwrap_or_default();
        assert!(!watch(loopback).attend().is_lost);
        assert!(watch(i32::MAX.unsigned_abs()).attend().is_lost);
        let broken = watch(loopback);
        assert_eq!(broken.attend().latest, Some(LOOK));
        let set = broken.broken.set(io::ErrorKind::BrokenPipe.into());
        assert!(set.is_ok() && broken.attend().is_lost);
    }
}
