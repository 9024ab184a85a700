//! The functions of an engine that a reader of the engine's ring calls. The reader calls none of
//! them per packet.

use std::error::Error;
use std::ffi::c_short;
use std::os::fd::BorrowedFd;
use std::{fmt, io};

/// The engine's side of one ring. Any thread may call these functions.
pub trait Port: Send + Sync {
    /// The descriptor that poll(2) finds readable while the ring has packets.
    fn waits_on(&self) -> BorrowedFd<'_>;

    /// Whether the descriptor that [`Port::waits_on`] returns is the handle's packet socket, on
    /// which the application may call poll(2) and send packets.
    fn is_socket(&self) -> bool {
        true
    }

    /// Asks the engine to make the descriptor readable when packets with as many bytes have come as
    /// `after` says, headers of records included. The reader makes this call before it waits. For
    /// an application that waits in poll(2), the reader also makes this call when a read ends and
    /// leaves nothing unread. Returns false when the reader must not wait: so many bytes have come
    /// already, or `after` is 1 and a packet is unread. The default is for an engine whose
    /// descriptor is always readable when packets come.
    fn arm(&self, _after: u64) -> bool {
        true
    }

    /// Asks the engine to make the descriptor readable only when a packet has no room. The reader
    /// makes this call before it rests while the ring fills. Returns false if the engine can't:
    /// then the reader does not wait on the descriptor during the rest.
    fn rest(&self) -> bool {
        false
    }

    /// The index of the loopback interface, on which the kernel delivers each packet twice:
    /// outgoing and incoming.
    fn loopback(&self) -> Option<u32> {
        None
    }

    /// Interprets the events that poll(2) has `found`, except packets. Returns [`LinkState::Down`]
    /// when the device went down. [`LinkState::Up`] does not mean that a device which was down is
    /// up again.
    ///
    /// # Errors
    /// The reason why no more packets can be read.
    fn check(&self, found: c_short) -> Result<LinkState, ReadError>;

    /// Whether the device is up. The reader asks every millisecond while the device is down.
    ///
    /// # Errors
    /// The device is gone ([`ReadError::of_gone`]), or its state can't be read.
    fn link(&self) -> Result<LinkState, ReadError>;

    /// The error to report after poll(2) on the descriptor failed with `error`.
    fn poll_error(&self, error: io::Error) -> ReadError;

    /// Reads and clears the kernel's counters.
    ///
    /// # Errors
    /// The kernel's error.
    fn take_statistics(&self) -> io::Result<PortStatistics>;
}

/// The state of a port's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Packets may come.
    Up,
    /// The device is down or gone.
    Down,
}

/// The kernel's counters since the last read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Packets that passed the filter, including dropped packets.
    pub received: u64,
    /// Packets lost because the ring was full.
    pub dropped: u64,
}

/// The text of the system's libpcap about a device that is gone (pcap-linux.c,
/// `pcap_wait_for_frames_mmap`).
pub const DISAPPEARED: &str = "The interface disappeared";

/// The reason why packets can't be read, as the ring or the port reports it.
#[derive(Debug)]
pub struct ReadError {
    error: Box<dyn Error + Send + Sync>,
    is_gone: bool,
}

impl ReadError {
    /// Wraps `error`. The application gets its text from pcap_geterr(3PCAP).
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self {
            error: Box::new(error),
            is_gone: false,
        }
    }

    /// As [`ReadError::new`], for a device that is gone: no packet is on its way into the ring.
    pub fn of_gone(error: impl Error + Send + Sync + 'static) -> Self {
        Self {
            is_gone: true,
            ..Self::new(error)
        }
    }

    /// The error of a device that is gone, as the system's libpcap has it.
    pub fn of_removed_device() -> Self {
        Self {
            error: DISAPPEARED.into(),
            is_gone: true,
        }
    }

    /// Whether the device is gone.
    pub fn is_gone(&self) -> bool {
        self.is_gone
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl Error for ReadError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_a_removed_device_is_that_of_the_systems_libpcap() {
        let error = ReadError::of_removed_device();
        assert!(error.is_gone());
        assert_eq!(error.to_string(), "The interface disappeared");
    }
}
