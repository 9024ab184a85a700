//! What a reader asks of the engine that fills its ring: the calls that are not made per packet.

use std::error::Error;
use std::ffi::c_short;
use std::os::fd::BorrowedFd;
use std::{fmt, io};

/// The engine's side of one ring. Any thread may call these functions.
pub trait Port: fmt::Debug + Send + Sync {
    /// The descriptor that poll(2) finds readable while the ring has packets.
    fn waits_on(&self) -> BorrowedFd<'_>;

    /// The index of the loopback interface, on which each packet is seen twice: outgoing and
    /// incoming.
    fn loopback(&self) -> Option<u32>;

    /// Judges what poll(2) has `found` of the descriptor besides packets. `Link::Down` when the
    /// device went down; `Link::Up` does not mean that a device which was down is up again.
    ///
    /// # Errors
    /// Why no packets can be read any more.
    fn check(&self, found: c_short) -> Result<Link, ReadError>;

    /// Whether the device is up. The reader asks every millisecond while the device is down.
    ///
    /// # Errors
    /// The device is gone, or its state can't be read.
    fn link(&self) -> Result<Link, ReadError>;

    /// What to say of a poll(2) on the descriptor that has failed with `error`.
    fn poll_error(&self, error: io::Error) -> ReadError;

    /// What the kernel has counted since the last call.
    ///
    /// # Errors
    /// What the kernel says.
    fn take_statistics(&self) -> io::Result<Statistics>;
}

/// The state of a port's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Packets may come.
    Up,
    /// The device is down. It may be gone.
    Down,
}

/// Counters of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that passed the filter, dropped ones included.
    pub received: u64,
    /// Packets that found no room in the ring.
    pub dropped: u64,
}

/// Why packets can't be read, in the words of the ring or of its port.
#[derive(Debug)]
pub struct ReadError(Box<dyn Error + Send + Sync>);

impl ReadError {
    /// The application reads `error`'s text from pcap_geterr(3PCAP).
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for ReadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
