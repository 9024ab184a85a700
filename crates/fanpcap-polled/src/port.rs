//! The port of a member's pool: waking, the end of the poller, counters.

use fanpcap_linux::unix::message;
use fanpcap_linux::wait::{self, Epoll, POLLIN};
use fanpcap_reader::{LinkState, Port, PortStatistics, ReadError};
use fanpcap_ring::PoolWords;
use std::error::Error;
use std::ffi::c_short;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io};

/// The port of a member's pool.
pub(crate) struct PolledPort {
    /// Names the poller: `packet:eth0`.
    at: Arc<str>,
    /// Closes when the poller ends, or takes the member for dead.
    connection: Arc<OwnedFd>,
    bell: Arc<OwnedFd>,
    /// Becomes readable when the poller rings the bell, or when the connection closes.
    epoll: Epoll,
    words: PoolWords,
    /// The counts that were reported so far: records, and packets for which the pool had no room.
    produced: AtomicU64,
    dropped: AtomicU64,
}

impl PolledPort {
    pub(crate) fn new(
        at: Arc<str>,
        connection: Arc<OwnedFd>,
        bell: Arc<OwnedFd>,
        words: PoolWords,
    ) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(bell.as_fd(), true)?;
        epoll.add(connection.as_fd(), false)?;
        Ok(Self {
            at,
            connection,
            bell,
            epoll,
            words,
            produced: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }

    /// Takes the wake-ups that have come so far.
    fn clear(&self) {
        let mut byte = [0; 8];
        while message::receive(self.bell.as_fd(), &mut byte, 0).is_ok_and(|it| it.is_some()) {}
    }

    fn ended(&self) -> ReadError {
        ReadError::of_gone(Ended(Arc::clone(&self.at)))
    }

    fn lanes(&self) -> std::ops::Range<usize> {
        0..self.words.lanes()
    }
}

impl Port for PolledPort {
    fn waits_on(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    fn is_socket(&self) -> bool {
        false
    }

    fn arm(&self, after: u64) -> bool {
        // Before the lanes are armed: a bell that rings later stays rung.
        self.clear();
        if !self.lanes().all(|lane| self.words.wake_after(lane, after)) {
            return false;
        }
        // No record wakes the reader that came before this call. So this function returns false if
        // there are unread records: the reader must then read them and not wait.
        after > 1 || !self.words.has_unread()
    }

    fn rest(&self) -> bool {
        self.clear();
        self.lanes()
            .for_each(|lane| self.words.wake_for_drops(lane));
        true
    }

    fn loopback(&self) -> Option<u32> {
        // A poller delivers each packet of the loopback device once.
        None
    }

    fn check(&self, _: c_short) -> Result<LinkState, ReadError> {
        match self.link() {
            // The reader then asks for the link's state, and reads the pool to its end first.
            Err(error) if error.is_gone() => Ok(LinkState::Down),
            state => state,
        }
    }

    fn link(&self) -> Result<LinkState, ReadError> {
        let zero = Some(Duration::ZERO);
        match wait::wait(Some(self.connection.as_fd()), None, zero) {
            Ok(woken) if woken.socket & !POLLIN != 0 => Err(self.ended()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(self.poll_error(error)),
            Ok(_) | Err(_) => Ok(LinkState::Up),
        }
    }

    fn poll_error(&self, error: io::Error) -> ReadError {
        ReadError::new(error)
    }

    fn take_statistics(&self) -> io::Result<PortStatistics> {
        let (mut produced, mut dropped) = (0_u64, 0_u64);
        for counts in self.lanes().map(|lane| self.words.counts(lane)) {
            produced = produced.saturating_add(counts.produced);
            dropped = dropped.saturating_add(counts.dropped);
        }
        let take = |counted: &AtomicU64, now: u64| {
            let before = counted.fetch_max(now, Ordering::Relaxed);
            now.saturating_sub(before)
        };
        let dropped = take(&self.dropped, dropped);
        Ok(PortStatistics {
            received: take(&self.produced, produced).saturating_add(dropped),
            dropped,
        })
    }
}

/// The error of a read when the poller of `at`, such as `packet:eth0`, has ended.
pub fn ended(at: &str) -> String {
    let (engine, device) = at.split_once(':').unwrap_or(("", at));
    let advice = match engine {
        // There is no network interface for which a handle could wait.
        "dpdk" => String::new(),
        _ => format!(", or set gone@{device} = wait"),
    };
    format!(
        "the poller of {at} has ended or has closed the connection: start it and open the handle \
         again{advice}"
    )
}

/// The poller has ended, or has closed the connection of a member that it takes for dead.
#[derive(Debug)]
struct Ended(Arc<str>);

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&ended(&self.0))
    }
}

impl Error for Ended {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_without_an_interface_is_not_told_to_wait() {
        let told = ended("packet:eth0");
        assert!(told.ends_with("again, or set gone@eth0 = wait"), "{told}");
        let told = ended("dpdk:0000:3b:00.0");
        assert!(told.ends_with("open the handle again"), "{told}");
    }
}
