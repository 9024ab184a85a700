//! Why packets can't be read from a packet socket. The texts are those of the system's libpcap
//! (pcap-linux.c, `pcap_wait_for_frames_mmap`).

use std::error::Error;
use std::{fmt, io};

/// Why packets can't be read from a packet socket.
#[derive(Debug)]
pub enum SocketError {
    /// poll(2) failed.
    Poll(io::Error),
    /// `POLLNVAL`: the descriptor given to poll(2) is not open.
    Invalid,
    /// `POLLHUP`: the socket was hung up.
    Hangup,
    /// `POLLERR`: the socket has this pending error.
    Condition(io::Error),
    /// poll(2) reports an error, but the socket has no pending error.
    NoCondition,
    /// The interface's state can't be read.
    Flags {
        /// The interface's name.
        device: String,
        /// The kernel's error.
        error: io::Error,
    },
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Poll(error) => write!(f, "can't poll on packet socket: {}", plain(error)),
            Self::Invalid => f.write_str("Invalid polling request on packet socket"),
            Self::Hangup => f.write_str("Hangup on packet socket"),
            Self::Condition(error) => {
                write!(f, "Error condition on packet socket: {}", plain(error))
            }
            Self::NoCondition => {
                f.write_str("Error condition on packet socket: Reported error was 0")
            }
            Self::Flags { device, error } => {
                write!(f, "{device}: Can't get flags: {}", plain(error))
            }
        }
    }
}

impl Error for SocketError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Poll(error) | Self::Condition(error) | Self::Flags { error, .. } => Some(error),
            Self::Invalid | Self::Hangup | Self::NoCondition => None,
        }
    }
}

/// An error's text as strerror(3) returns it.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_the_text_of_the_systems_libpcap() {
        let down = || io::Error::from_raw_os_error(100);
        let device = "eth7".to_owned();
        let error = down();
        let texts = [
            (
                SocketError::Poll(down()),
                "can't poll on packet socket: Network is down",
            ),
            (
                SocketError::Invalid,
                "Invalid polling request on packet socket",
            ),
            (SocketError::Hangup, "Hangup on packet socket"),
            (
                SocketError::Condition(down()),
                "Error condition on packet socket: Network is down",
            ),
            (
                SocketError::NoCondition,
                "Error condition on packet socket: Reported error was 0",
            ),
            (
                SocketError::Flags { device, error },
                "eth7: Can't get flags: Network is down",
            ),
        ];
        for (error, text) in texts {
            assert_eq!(error.to_string(), text);
        }
    }
}
