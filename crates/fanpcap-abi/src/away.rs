//! A handle that waits when its device is gone: what the handle needs until the device is back.

use crate::pcap_handle::PcapHandle;
use fanpcap::gone::NotBack;
use fanpcap_linux::netlink::monitor::LinkMonitor;
use fanpcap_linux::process::netns;
use fanpcap_linux::wait::clock;
use fanpcap_reader::{LinkState, Port, PortStatistics, ReadError};
use std::error::Error;
use std::ffi::c_short;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{fmt, io};

/// How long attempts to capture again may fail after the device is back. Until then, other members
/// may have to leave the group on the device that is gone.
const FAILS_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two attempts to capture again.
const PAUSE: Duration = Duration::from_millis(20);

/// A handle's preparations for the end of its device.
#[derive(Debug)]
pub(crate) struct Away {
    /// The devices of the network namespace in which the handle was activated.
    monitor: LinkMonitor,
    netns: u64,
    pub(crate) is_away: AtomicBool,
    /// When the first of the latest failed attempts was made, in nanoseconds of `CLOCK_MONOTONIC`;
    /// 0: the last attempt did not fail.
    failing_ns: AtomicU64,
    pub(crate) come_back: fn(PcapHandle) -> Result<(), NotBack>,
}

impl Away {
    /// # Errors
    /// The errors of socket(2), and of stat(2) for the namespace.
    pub(crate) fn new(come_back: fn(PcapHandle) -> Result<(), NotBack>) -> io::Result<Self> {
        Ok(Self {
            monitor: LinkMonitor::new()?,
            netns: netns::inode()?,
            is_away: AtomicBool::new(false),
            failing_ns: AtomicU64::new(0),
            come_back,
        })
    }

    /// Whether the calling thread is in the network namespace in which the handle was activated.
    pub(crate) fn is_here(&self) -> bool {
        netns::inode().is_ok_and(|netns| netns == self.netns)
    }

    /// Discards the notifications that have come.
    pub(crate) fn clear(&self) {
        self.monitor.clear();
    }

    /// Returns how long to wait at most until the next attempt; `None`: until a device changes.
    ///
    /// # Errors
    /// The handle can't wait, or attempts have been refused for too long.
    pub(crate) fn after(&self, attempt: NotBack) -> Result<Option<Duration>, String> {
        let why = match attempt {
            NotBack::Gone => {
                self.failing_ns.store(0, Ordering::Relaxed);
                return Ok(None);
            }
            NotBack::Failed(why) => return Err(why),
            NotBack::Refused(why) => why,
        };
        let now = clock::monotonic_ns();
        let first = match self.failing_ns.load(Ordering::Relaxed) {
            0 => now,
            first => first,
        };
        self.failing_ns.store(first, Ordering::Relaxed);
        match Duration::from_nanos(now.saturating_sub(first)) < FAILS_WITHIN {
            true => Ok(Some(PAUSE)),
            false => Err(why),
        }
    }
}

/// The port of a reader while the device is gone.
pub(crate) struct AwayPort(pub(crate) Arc<Away>);

impl Port for AwayPort {
    fn waits_on(&self) -> BorrowedFd<'_> {
        self.0.monitor.as_fd()
    }

    fn loopback(&self) -> Option<u32> {
        None
    }

    fn check(&self, _: c_short) -> Result<LinkState, ReadError> {
        Ok(LinkState::Up)
    }

    fn link(&self) -> Result<LinkState, ReadError> {
        Err(ReadError::of_gone(Disappeared))
    }

    fn poll_error(&self, error: io::Error) -> ReadError {
        ReadError::new(error)
    }

    fn take_statistics(&self) -> io::Result<PortStatistics> {
        Ok(PortStatistics::default())
    }
}

#[derive(Debug)]
struct Disappeared;

impl fmt::Display for Disappeared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("The interface disappeared")
    }
}

impl Error for Disappeared {}
