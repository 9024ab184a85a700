//! Why a sender can't be opened.

use std::fmt;
use std::io;

use crate::live::LiveError;

/// Why a sender can't be opened.
#[derive(Debug)]
pub enum OpenError {
    /// There is no such device.
    NoDevice(String),
    /// The device is down.
    Down(String),
    /// The device is up, but has no carrier.
    NoCarrier(String),
    /// The device's frames are others than Ethernet's: its `ARPHRD_*` number.
    NotEthernet(String, u16),
    /// The pool is empty.
    NoFrames,
    /// The longest frame has more bytes than the device takes.
    TooLong {
        /// The frame's length.
        len: usize,
        /// The longest that the device takes.
        most: usize,
    },
    /// Live frames are not possible.
    Live(LiveError),
    /// Asking for the device failed, or opening the packet socket did.
    Call(&'static str, io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice(device) => write!(f, "there is no device {device} here"),
            Self::Down(device) => write!(f, "{device} is down: ip link set {device} up"),
            Self::NoCarrier(device) => write!(
                f,
                "{device} has no carrier: nothing is plugged in, or its other end is down"
            ),
            Self::NotEthernet(device, kind) => write!(
                f,
                "{device} is no Ethernet device (its type is {kind}): it would take Ethernet's header for data"
            ),
            Self::NoFrames => write!(f, "there is no frame to send"),
            Self::TooLong { len, most } => write!(
                f,
                "a frame of {len} bytes: the device takes {most} at most; raise its MTU"
            ),
            Self::Live(error) => write!(f, "live frames: {error}"),
            Self::Call(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Live(error) => Some(error),
            Self::Call(_, error) => Some(error),
            Self::NoDevice(_)
            | Self::Down(_)
            | Self::NoCarrier(_)
            | Self::NotEthernet(..)
            | Self::NoFrames
            | Self::TooLong { .. } => None,
        }
    }
}
