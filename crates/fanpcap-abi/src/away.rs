//! A handle that waits when its device is gone: what the handle needs until the device is back.

use crate::pcap_handle::PcapHandle;
use fanpcap::gone::NotBack;
use fanpcap_config::steering::GroupOptions;
use fanpcap_group::waiting::Sign;
use fanpcap_linux::netlink::link;
use fanpcap_linux::netlink::monitor::LinkMonitor;
use fanpcap_linux::packet;
use fanpcap_linux::process::lock::Lock;
use fanpcap_linux::process::netns;
use fanpcap_reader::{LinkState, Port, PortStatistics, ReadError};
use std::ffi::c_short;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use std::{io, mem};

/// How long attempts to capture again may fail after the device is back. Until then, other members
/// may have to leave the group on the device that is gone.
const FAILS_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two attempts to capture again, and between two looks for a poller's answer.
const PAUSE: Duration = Duration::from_millis(20);

/// The pause between two attempts while no poller serves the device. A poller's start shows on no
/// descriptor.
const POLLER_PAUSE: Duration = Duration::from_millis(200);

/// A steering program's text, and the options of its group.
pub(crate) type Former = (Box<str>, GroupOptions);

/// A handle's preparations for the end of its device.
#[derive(Debug)]
pub(crate) struct Away {
    /// The devices of the network namespace in which the handle was activated.
    monitor: LinkMonitor,
    netns: u64,
    /// The device's hardware type, `ARPHRD_*`.
    hardware: u16,
    pub(crate) is_away: AtomicBool,
    /// Shows other processes which device the handle waits for.
    sign: Lock<Option<Sign>>,
    /// When the first of the latest failed attempts was made, in nanoseconds of `CLOCK_MONOTONIC`;
    /// 0: the last attempt did not fail.
    failing_ns: AtomicU64,
    /// The connection on which the handle has asked a poller that has not answered yet.
    asked: Lock<Option<OwnedFd>>,
    /// The steering program of the handle's group at its last poller, if the handle did not ask for
    /// it. The handle may be the first that comes back.
    former: Lock<Option<Arc<Former>>>,
    /// The setting that makes the handle wait: `PCAP_GONE=wait`, `/etc/pcap.conf:3`.
    pub(crate) origin: Box<str>,
    pub(crate) come_back: fn(PcapHandle) -> Result<(), NotBack>,
}

impl Away {
    /// The preparations of a handle whose `socket` is bound to the device, and which waits because
    /// of the setting `origin`.
    ///
    /// # Errors
    /// The errors of socket(2), and of stat(2) for the namespace.
    pub(crate) fn new(
        socket: BorrowedFd<'_>,
        origin: &str,
        come_back: fn(PcapHandle) -> Result<(), NotBack>,
    ) -> io::Result<Self> {
        Ok(Self {
            monitor: LinkMonitor::new()?,
            netns: netns::inode()?,
            hardware: packet::hardware_type(socket)?,
            is_away: AtomicBool::new(false),
            sign: Lock::new(None),
            failing_ns: AtomicU64::new(0),
            asked: Lock::new(None),
            former: Lock::new(None),
            origin: origin.into(),
            come_back,
        })
    }

    /// Whether a device named `device` is up.
    ///
    /// # Errors
    /// The calling thread is not in the network namespace in which the handle was activated, or the
    /// application could not read the packets of this device.
    pub(crate) fn finds(&self, device: &str) -> Result<bool, String> {
        if !netns::inode().is_ok_and(|netns| netns == self.netns) {
            return Err("the thread that reads is not in the device's network namespace".into());
        }
        match link::find_up(device) {
            Some(link) if link.hardware != self.hardware => Err(format!(
                "{device} came back with another link type: open it again"
            )),
            link => Ok(link.is_some()),
        }
    }

    /// Whether `socket` is bound to a device of the handle's link type.
    pub(crate) fn fits(&self, socket: BorrowedFd<'_>) -> bool {
        packet::hardware_type(socket).is_ok_and(|hardware| hardware == self.hardware)
    }

    /// Shows other processes that the handle, whose socket is `socket`, waits for `device`.
    pub(crate) fn show(&self, device: &str, socket: BorrowedFd<'_>) {
        // Best effort: without the sign, the handle waits as well.
        let sign = packet::inode(socket).and_then(|inode| Sign::of_handle(device, inode));
        // The old socket is closed after the lock: another thread may fork.
        drop(self.sign.with(|shown| mem::replace(shown, sign.ok())));
    }

    /// Notes that the handle captures again.
    pub(crate) fn end(&self) {
        self.sign.with(Option::take);
        self.is_away.store(false, Ordering::Relaxed);
        self.failing_ns.store(0, Ordering::Relaxed);
    }

    /// Whether the handle has left its device.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// The connection that an attempt has kept.
    pub(crate) fn take_asked(&self) -> Option<OwnedFd> {
        self.asked.with(Option::take)
    }

    /// Keeps the connection on which the handle has asked a poller, for the next attempt.
    pub(crate) fn keep_asked(&self, asked: Option<OwnedFd>) {
        drop(self.asked.with(|kept| mem::replace(kept, asked)));
    }

    /// Notes the steering program that the handle's group has at the poller.
    pub(crate) fn note_steering(&self, steering: Option<(&str, GroupOptions)>) {
        let former = steering.map(|(text, options)| Arc::new((text.into(), options)));
        drop(self.former.with(|noted| mem::replace(noted, former)));
    }

    /// The steering program that was noted.
    pub(crate) fn former(&self) -> Option<Arc<Former>> {
        self.former.with(|noted| noted.clone())
    }

    /// Discards the notifications that have come.
    pub(crate) fn clear(&self) {
        self.monitor.clear();
    }

    /// Returns how long to wait at most until the next attempt; `None`: until a device changes.
    /// `now_ns` is the present time of [`fanpcap_linux::wait::clock::monotonic_ns`].
    ///
    /// # Errors
    /// The handle can't wait, or attempts have been refused for too long.
    pub(crate) fn after(&self, attempt: NotBack, now_ns: u64) -> Result<Option<Duration>, String> {
        let why = match attempt {
            NotBack::Left => return Ok(Some(PAUSE)),
            NotBack::NoPoller => {
                self.failing_ns.store(0, Ordering::Relaxed);
                let has_asked = self.asked.with(|asked| asked.is_some());
                return Ok(Some(if has_asked { PAUSE } else { POLLER_PAUSE }));
            }
            NotBack::Gone => {
                self.failing_ns.store(0, Ordering::Relaxed);
                return Ok(None);
            }
            NotBack::Failed(why) => return Err(why),
            NotBack::Refused(why) => why,
        };
        let first = match self.failing_ns.load(Ordering::Relaxed) {
            0 => now_ns,
            first => first,
        };
        self.failing_ns.store(first, Ordering::Relaxed);
        match Duration::from_nanos(now_ns.saturating_sub(first)) < FAILS_WITHIN {
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
        Err(ReadError::of_removed_device())
    }

    fn poll_error(&self, error: io::Error) -> ReadError {
        ReadError::new(error)
    }

    fn take_statistics(&self) -> io::Result<PortStatistics> {
        Ok(PortStatistics::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::interface;
    use fanpcap_linux::wait::pipe::Pipe;

    fn away() -> Away {
        Away {
            monitor: LinkMonitor::new().unwrap(),
            netns: netns::inode().unwrap(),
            hardware: libc::ARPHRD_LOOPBACK,
            is_away: AtomicBool::new(true),
            sign: Lock::new(None),
            failing_ns: AtomicU64::new(0),
            asked: Lock::new(None),
            former: Lock::new(None),
            origin: "PCAP_GONE=wait".into(),
            come_back: |_| Ok(()),
        }
    }

    #[test]
    fn attempts_fail_for_ten_seconds_after_each_return() {
        let away = away();
        let limit = u64::try_from(FAILS_WITHIN.as_nanos()).unwrap();
        let refused = |now_ns| away.after(NotBack::Refused("full".to_owned()), now_ns);
        assert_eq!(refused(5), Ok(Some(PAUSE)));
        assert_eq!(refused(4 + limit), Ok(Some(PAUSE)));
        assert_eq!(refused(5 + limit), Err("full".to_owned()));
        // The device is gone again.
        assert_eq!(away.after(NotBack::Gone, 6 + limit), Ok(None));
        assert_eq!(refused(7 + limit), Ok(Some(PAUSE)));
        // The handle captures, and its device is replaced.
        away.end();
        assert_eq!(away.after(NotBack::Left, 8 + limit), Ok(Some(PAUSE)));
        assert_eq!(refused(7 + 2 * limit), Ok(Some(PAUSE)));
    }

    #[test]
    fn a_poller_that_was_asked_is_looked_at_soon() {
        let away = away();
        let pause = || away.after(NotBack::NoPoller, 5).unwrap().unwrap();
        assert_eq!(pause(), POLLER_PAUSE);
        let pipe = Pipe::new().unwrap();
        away.keep_asked(Some(pipe.write));
        assert_eq!(pause(), PAUSE);
        // The poller has closed the connection.
        drop(away.take_asked());
        away.keep_asked(None);
        assert_eq!(pause(), POLLER_PAUSE);
    }

    #[test]
    fn a_device_of_another_link_type_is_not_the_handles() {
        let lo = interface::find("lo").unwrap().unwrap();
        let is_up = link::find_up("lo").is_some_and(|link| link.index == lo);
        let mut away = away();
        assert_eq!(away.finds("lo"), Ok(is_up));
        away.hardware = libc::ARPHRD_ETHER;
        let found = away.finds("lo");
        assert!(!is_up || found.unwrap_err().contains("another link type"));
        assert_eq!(away.finds("nonesuch"), Ok(false));
        away.netns += 1;
        assert!(away.finds("lo").unwrap_err().contains("namespace"));
    }
}
