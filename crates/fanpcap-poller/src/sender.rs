//! Sends the frames of members on the device, if the administrator allows it.

use crate::dpdk::DeviceSender;
use fanpcap_linux::packet::{self, Address, inject};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// What became of the frames of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentCounts {
    /// Frames that the kernel or the device has taken.
    pub sent: u64,
    /// Frames that the kernel or the device has refused, or for which the device's queue had no
    /// room.
    pub failed: u64,
}

/// What sends the frames of members.
#[derive(Debug)]
pub struct Sender {
    by: By,
    counts: SentCounts,
}

#[derive(Debug)]
enum By {
    /// A packet socket that only sends. It is none of a source's sockets: the kernel does not give
    /// a frame to the socket that sends it, and the members are to see each other's frames.
    Socket(OwnedFd),
    /// A device of DPDK. It does not give the members what it sends.
    Device(DeviceSender),
}

impl Sender {
    /// Sends on the device with this index in the calling thread's network namespace.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`, and other errors of socket(2) and bind(2).
    pub fn open(ifindex: u32) -> io::Result<Self> {
        let socket = packet::open()?;
        let address = Address {
            ifindex,
            protocol: 0,
        };
        packet::bind(socket.as_fd(), address)?;
        Ok(Self::of(By::Socket(socket)))
    }

    /// Sends on a device of DPDK.
    pub fn of_device(device: DeviceSender) -> Self {
        Self::of(By::Device(device))
    }

    fn of(by: By) -> Self {
        let counts = SentCounts::default();
        Self { by, counts }
    }

    /// Sends a frame, without waiting. Counts a frame that can't be sent.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        let sent = match &self.by {
            By::Socket(socket) => inject::try_send(socket.as_fd(), frame),
            By::Device(device) => device.send(frame),
        };
        match sent {
            Ok(true) => self.counts.sent += 1,
            Ok(false) | Err(_) => self.counts.failed += 1,
        }
    }

    pub(crate) fn counts(&self) -> SentCounts {
        self.counts
    }
}
