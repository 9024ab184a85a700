//! Waiting at an empty ring, and what a program is told when that fails: in the words of the system's
//! libpcap (pcap-linux.c, `pcap_wait_for_frames_mmap`).

use crate::call::{Call, End, Wait};
use crate::lane::Device;
use crate::reader::Reader;
use fanpcap_linux::wait::{
    self, ENETDOWN, ENODEV, ENXIO, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLRDHUP, Woken,
};
use fanpcap_linux::{interface, packet};
use fanpcap_ring::Corrupt;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{fmt, io};

/// Why packets can't be read.
#[derive(Debug)]
pub enum ReadError {
    /// poll(2) failed.
    Poll(io::Error),
    /// poll(2) takes the socket for none.
    Invalid,
    /// The socket was hung up.
    Hangup,
    /// The socket has an error.
    Condition(io::Error),
    /// poll(2) speaks of an error that there is not.
    NoCondition,
    /// The interface is gone.
    Disappeared,
    /// The interface's state can't be read.
    Flags {
        /// Its name.
        device: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// The ring holds what the kernel doesn't write.
    Corrupt(Corrupt),
}

impl fmt::Display for ReadError {
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
            Self::Disappeared => f.write_str("The interface disappeared"),
            Self::Flags { device, error } => {
                write!(f, "{device}: Can't get flags: {}", plain(error))
            }
            Self::Corrupt(corrupt) => corrupt.fmt(f),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Poll(error) | Self::Condition(error) | Self::Flags { error, .. } => Some(error),
            Self::Invalid
            | Self::Hangup
            | Self::NoCondition
            | Self::Disappeared
            | Self::Corrupt(_) => None,
        }
    }
}

/// An error as strerror(3) tells it.
fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}

/// While nobody knows whether the interface is down or gone, it is looked after this often.
const NET_DOWN_INTERVAL: Duration = Duration::from_millis(1);

impl Reader {
    /// Waits as it is told, unless the program breaks the loop or a device fails. A non-blocking reader only
    /// looks.
    #[cold]
    pub(crate) fn wait(&self, wait: Wait, call: &mut Call) -> Result<(), End> {
        match wait {
            Wait::Rest(rest) => return self.rest(rest),
            Wait::Packets(longest) => {
                if !self.wait_for_packets(longest)? {
                    // The program must not notice that this was no wait of its own.
                    return Ok(());
                }
            }
            Wait::Any(devices, longest) => self.wait_for_any(devices, longest)?,
        }
        call.begun = true;
        Ok(())
    }

    /// Waits for packets; false when `longest` may have passed before, or another thread has nudged it, and the reader
    /// has something else to do: it knows how much of it is left when a signal has cut the wait short.
    fn wait_for_packets(&self, longest: Option<Duration>) -> Result<bool, End> {
        let device = &self.devices[0];
        let blocking = !self.is_nonblocking();
        loop {
            let wake = blocking.then_some(&self.wake);
            let limits = [longest, limit(blocking, device.is_down())];
            let limit = limits.into_iter().flatten().min();
            let woken = self.woken(wait::wait(Some(device.socket), wake, limit))?;
            if let Some(woken) = woken {
                if woken.socket == POLLIN {
                    return Ok(true);
                }
                device.check(woken.socket)?;
                self.check_break(woken.signalled)?;
            }
            if device.is_down() {
                device.look_after()?;
            }
            if !blocking {
                return Ok(true);
            }
            let is_nudged = woken.is_some_and(|woken| woken.signalled);
            let is_over = woken.is_none_or(|woken| woken == Woken::default());
            if is_nudged || (longest.is_some() && is_over) {
                return Ok(false);
            }
        }
    }

    /// Leaves a busy ring alone for a while.
    fn rest(&self, rest: Duration) -> Result<(), End> {
        match self.woken(wait::wait(None, Some(&self.wake), Some(rest)))? {
            Some(woken) => self.check_break(woken.signalled),
            None => Ok(()),
        }
    }

    /// None when a signal handler has run: the program may have broken the loop in it.
    pub(crate) fn woken<T>(&self, waited: io::Result<T>) -> Result<Option<T>, End> {
        match waited {
            Ok(woken) => Ok(Some(woken)),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(ReadError::Poll(error).into())
            }
            Err(_) if self.take_break() => Err(End::Broken),
            Err(_) => Ok(None),
        }
    }

    /// Ends the read when it was woken because the loop was broken.
    pub(crate) fn check_break(&self, signalled: bool) -> Result<(), End> {
        if signalled {
            self.wake.clear();
            if self.take_break() {
                return Err(End::Broken);
            }
        }
        Ok(())
    }
}

/// How long to wait at most; for ever without.
pub(crate) fn limit(blocking: bool, is_down: bool) -> Option<Duration> {
    match blocking {
        false => Some(Duration::ZERO),
        true => is_down.then_some(NET_DOWN_INTERVAL),
    }
}

impl Device {
    /// Whether it is down or gone, as far as is known.
    pub(crate) fn is_down(&self) -> bool {
        self.net_down.load(Ordering::Relaxed)
    }

    /// What else than packets poll(2) has `found` of the socket.
    pub(crate) fn check(&self, found: i16) -> Result<(), End> {
        if found & POLLNVAL != 0 {
            return Err(ReadError::Invalid.into());
        }
        if found & (POLLHUP | POLLRDHUP) != 0 {
            return Err(ReadError::Hangup.into());
        }
        if found & POLLERR == 0 {
            return Ok(());
        }
        let error = wait::take_error(self.socket).unwrap_or_else(Some);
        match error {
            None => Err(ReadError::NoCondition.into()),
            // Down or gone: the socket can't tell yet.
            Some(error) if error.raw_os_error() == Some(ENETDOWN) => {
                self.net_down.store(true, Ordering::Relaxed);
                Ok(())
            }
            Some(error) => Err(ReadError::Condition(error).into()),
        }
    }

    /// Tells an interface that is down from one that is gone.
    pub(crate) fn look_after(&self) -> Result<(), End> {
        let gone = || End::from(ReadError::Disappeared);
        if packet::is_unbound(self.socket).unwrap_or(false) {
            return Err(gone());
        }
        let address = packet::address(self.socket).map_err(ReadError::Condition)?;
        match interface::is_up(self.socket, address.ifindex) {
            Ok(true) => self.net_down.store(false, Ordering::Relaxed),
            Ok(false) => {}
            Err(error) if matches!(error.raw_os_error(), Some(ENXIO | ENODEV)) => {
                return Err(gone());
            }
            Err(error) => {
                let device = interface::name(address.ifindex).unwrap_or_default();
                return Err(ReadError::Flags { device, error }.into());
            }
        }
        Ok(())
    }
}
