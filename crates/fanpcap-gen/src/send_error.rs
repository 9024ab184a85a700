//! What ends sending early.

use std::fmt;
use std::io;

use crate::live::LiveError;
use crate::open_error::OpenError;
use crate::replay_error::ReplayError;

/// What ended sending early.
#[derive(Debug)]
pub enum SendError {
    /// The device, while sending.
    Device(io::Error),
    /// The device was removed.
    Gone(String),
    /// The device was set down.
    Down(String),
    /// The device lost its carrier.
    NoCarrier(String),
    /// Most live frames don't leave the device: which, and how many.
    Refused(String),
    /// Live frames.
    Live(LiveError),
    /// The portable way can't be opened, to which live frames were to give way.
    Open(OpenError),
    /// The file that more frames come from.
    Replay(ReplayError),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(error) => write!(f, "the device takes no frames: {error}"),
            Self::Gone(device) => write!(f, "{device} was removed"),
            Self::Down(device) => write!(f, "{device} was set down"),
            Self::NoCarrier(device) => write!(f, "{device} has no carrier any more"),
            Self::Refused(why) => write!(f, "live frames: {why}"),
            Self::Live(error) => write!(f, "live frames: {error}"),
            Self::Open(error) => error.fmt(f),
            Self::Replay(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Device(error) => Some(error),
            Self::Live(error) => Some(error),
            Self::Open(error) => Some(error),
            Self::Replay(error) => Some(error),
            Self::Gone(_) | Self::Down(_) | Self::NoCarrier(_) | Self::Refused(_) => None,
        }
    }
}
