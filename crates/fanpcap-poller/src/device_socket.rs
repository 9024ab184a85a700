//! A packet socket on a device that receives nothing: it says what has become of the device, sends
//! frames, and keeps the device promiscuous.

use crate::source::SourceError;
use fanpcap_linux::interface;
use fanpcap_linux::packet::{self, Address, inject, renew};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A packet socket on a device.
#[derive(Debug)]
pub(crate) struct DeviceSocket {
    socket: OwnedFd,
    ifindex: u32,
}

impl DeviceSocket {
    /// Opens a socket on a device of the calling thread's network namespace.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV`.
    pub(crate) fn open(ifindex: u32) -> io::Result<Self> {
        let socket = packet::open()?;
        let protocol = 0;
        packet::bind(socket.as_fd(), Address { ifindex, protocol })?;
        renew::make_promiscuous(socket.as_fd(), ifindex)?;
        Ok(Self { socket, ifindex })
    }

    /// Whether the device can receive packets.
    ///
    /// # Errors
    /// It is down, or was removed.
    pub(crate) fn check(&self) -> Result<(), SourceError> {
        if packet::is_unbound(self.socket.as_fd()).map_err(SourceError::Other)? {
            return Err(SourceError::Gone);
        }
        match interface::is_up(self.socket.as_fd(), self.ifindex) {
            Ok(false) => Err(SourceError::Down),
            Ok(true) | Err(_) => Ok(()),
        }
    }

    /// Sends a frame. Returns false if the device has no room for the frame now.
    ///
    /// # Errors
    /// As [`inject::try_send`].
    pub(crate) fn send(&self, frame: &[u8]) -> io::Result<bool> {
        inject::try_send(self.socket.as_fd(), frame)
    }
}
