//! What an engine in user space offers to a poller.

use crate::burst::Burst;
use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// One receive queue of a device, which an engine in user space has opened. One thread uses a
/// source.
pub trait Source {
    /// Adds the packets that have come to an empty burst, as many as it has room for. Does not
    /// wait. The packets' memory is the caller's until [`Source::release`].
    ///
    /// # Errors
    /// What is wrong with the memory. The burst has the packets that came before.
    fn burst<'s>(&'s mut self, burst: &mut Burst<'s>) -> Result<(), SourceError>;

    /// Whether packets wait in so many quarters of the source's memory, from 1 to 3.
    fn has_filled(&self, _quarters: u8) -> bool {
        false
    }

    /// Gives the memory of the last burst's packets back to the engine.
    fn release(&mut self);

    /// Checks whether packets can come. The caller calls this from time to time while no packets
    /// come.
    ///
    /// # Errors
    /// Why no packets come.
    fn check(&mut self) -> Result<(), SourceError>;

    /// A descriptor that is readable when packets have come. `None` if the source must be polled.
    fn waits_on(&self) -> Option<BorrowedFd<'_>>;

    /// Prepares a wait on the descriptor. Returns whether the caller must look for packets once
    /// more before the wait, because these do not make the descriptor readable.
    fn begin_wait(&mut self) -> bool {
        false
    }

    /// Ends what [`Source::begin_wait`] has begun.
    fn end_wait(&mut self) {}

    /// Sends a frame. Returns false if the engine has no room for the frame now.
    ///
    /// # Errors
    /// The engine can't send, or can't send this frame.
    fn transmit(&mut self, frame: &[u8]) -> io::Result<bool>;

    /// The queue's number, from 0. It is the number of the lane in the members' pools, too.
    fn queue(&self) -> u16;

    /// The counts since the source was opened.
    fn counts(&mut self) -> SourceCounts;
}

/// Counts of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Packets that came to the source, those included that it has dropped or skipped.
    pub received: u64,
    /// Packets that the source has dropped, because the poller was late.
    pub dropped: u64,
    /// Packets that the source leaves out, because they come a second time.
    pub skipped: u64,
    /// How often there was no memory for a packet, because the poller was late. If the device
    /// writes into the source's memory, it may have dropped these packets, and counts them itself.
    /// If the kernel copies packets, `dropped` has these packets too.
    pub starved: u64,
    /// Packets that the device has not delivered, because they had errors. `received` does not have
    /// them.
    pub faulty: u64,
    /// How often the kernel's counters could not be read. If it is the last time, the other counts
    /// are too low.
    pub failed: u64,
}

/// Why no more packets come from a source.
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceError {
    /// The device is down. Packets come again when it is up.
    Down,
    /// The device was removed.
    Gone,
    /// The memory that the source shares with the kernel or the device has a wrong length or
    /// offset.
    Corrupt,
    /// Another error of the source.
    Other(io::Error),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Down => f.write_str("the device is down"),
            Self::Gone => f.write_str("the device was removed"),
            Self::Corrupt => f.write_str("the source's memory has a wrong length or offset"),
            Self::Other(error) => error.fmt(f),
        }
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Other(error) => Some(error),
            Self::Down | Self::Gone | Self::Corrupt => None,
        }
    }
}
