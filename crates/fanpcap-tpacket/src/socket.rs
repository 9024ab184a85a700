//! A packet socket as a reader's port, which reports errors, the device's state, and counters.

use crate::error::SocketError;
use fanpcap_linux::wait::{self, ENETDOWN, ENODEV, ENXIO, POLLERR, POLLHUP, POLLNVAL, POLLRDHUP};
use fanpcap_linux::{interface, packet};
use fanpcap_reader::{LinkState, Port, PortStatistics, ReadError};
use std::ffi::c_short;
use std::io;
use std::os::fd::BorrowedFd;
use std::thread;
use std::time::Duration;

/// How often, and at which interval, to check whether the kernel has unbound a socket.
const UNBOUND_STEPS: u32 = 200;
const UNBOUND_STEP: Duration = Duration::from_millis(1);

/// A packet socket that stays open as long as its reader lives.
#[derive(Clone, Copy, Debug)]
pub struct Socket(BorrowedFd<'static>);

impl Socket {
    /// The port of `socket`.
    pub fn new(socket: BorrowedFd<'static>) -> Self {
        Self(socket)
    }

    fn is_unbound(self) -> bool {
        packet::is_unbound(self.0).unwrap_or(false)
    }

    /// Waits until the kernel has unbound the socket, whose device is unlisted. An application that
    /// waits in poll(2) would not be woken for that: the socket reports no second error.
    fn is_unbound_soon(self) -> bool {
        (0..UNBOUND_STEPS).any(|_| {
            thread::sleep(UNBOUND_STEP);
            self.is_unbound()
        })
    }

    /// Whether the kernel still lists the socket's device. True if this is unknown.
    pub fn is_device_listed(&self) -> bool {
        let address = packet::address(self.0);
        let state = address.and_then(|address| interface::is_up(self.0, address.ifindex));
        !state.is_err_and(|error| is_missing(&error))
    }
}

/// Whether an error means that the device is gone.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENXIO | ENODEV))
}

impl Port for Socket {
    fn waits_on(&self) -> BorrowedFd<'_> {
        self.0
    }

    fn loopback(&self) -> Option<u32> {
        interface::index("lo")
    }

    fn check(&self, found: c_short) -> Result<LinkState, ReadError> {
        if found & POLLNVAL != 0 {
            return Err(ReadError::new(SocketError::Invalid));
        }
        if found & (POLLHUP | POLLRDHUP) != 0 {
            return Err(ReadError::new(SocketError::Hangup));
        }
        if found & POLLERR == 0 {
            return Ok(LinkState::Up);
        }
        match wait::take_error(self.0).unwrap_or_else(Some) {
            None => Err(ReadError::new(SocketError::NoCondition)),
            // The device is down or gone: the error does not say which. `link` finds out.
            Some(error) if error.raw_os_error() == Some(ENETDOWN) => Ok(LinkState::Down),
            Some(error) => Err(ReadError::new(SocketError::Condition(error))),
        }
    }

    fn link(&self) -> Result<LinkState, ReadError> {
        let gone = ReadError::of_removed_device;
        if self.is_unbound() {
            return Err(gone());
        }
        let address = packet::address(self.0);
        let address = address.map_err(|error| ReadError::new(SocketError::Condition(error)))?;
        match interface::is_up(self.0, address.ifindex) {
            Ok(true) => Ok(LinkState::Up),
            Ok(false) => Ok(LinkState::Down),
            Err(error) if is_missing(&error) && address.ifindex == 0 => Err(gone()),
            // The kernel has unlisted the device. It waits for packets on their way to the socket,
            // and then unbinds the socket (`unregister_netdevice_many_notify`).
            Err(error) if is_missing(&error) => match self.is_unbound_soon() {
                true => Err(gone()),
                false => Ok(LinkState::Down),
            },
            Err(error) => {
                let device = interface::name(address.ifindex).unwrap_or_default();
                Err(ReadError::new(SocketError::Flags { device, error }))
            }
        }
    }

    fn poll_error(&self, error: io::Error) -> ReadError {
        ReadError::new(SocketError::Poll(error))
    }

    fn take_statistics(&self) -> io::Result<PortStatistics> {
        let statistics = packet::take_statistics(self.0)?;
        Ok(PortStatistics {
            received: statistics.packets.into(),
            dropped: statistics.drops.into(),
        })
    }
}
