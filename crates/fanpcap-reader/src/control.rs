//! The part of a reader that other threads may use while one thread reads.

use crate::accept::{Options, Wanted};
use crate::call::{Call, End};
use crate::port::{LinkState, Port};
use fanpcap_linux::wait::{AnyOf, Wake};
use std::ffi::c_short;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the reading thread shares with other threads.
#[derive(Debug)]
pub(crate) struct Control {
    /// One device or more.
    pub(crate) devices: Vec<Device>,
    pub(crate) wanted: Wanted,
    pub(crate) wake: Wake,
    broken: AtomicBool,
    nonblocking: AtomicBool,
    /// The latest delivery of a packet after its arrival; `None`: no limit
    /// (pcap_set_timeout(3PCAP)).
    pub(crate) timeout: Option<Duration>,
    selectable: Option<Selectable>,
}

/// The descriptor of several devices, for applications that call select(2) or poll(2) themselves.
#[derive(Debug)]
struct Selectable {
    any: AnyOf,
    /// The application has asked for the descriptor.
    is_asked: AtomicBool,
}

impl Control {
    pub(crate) fn new(
        ports: Vec<Arc<dyn Port>>,
        timeout: Option<Duration>,
        options: &Options,
    ) -> io::Result<Self> {
        let loopback = ports.first().and_then(|port| port.loopback());
        Ok(Self {
            devices: ports.into_iter().map(Device::new).collect(),
            wanted: Wanted::new(options, loopback),
            wake: Wake::new()?,
            broken: AtomicBool::new(false),
            nonblocking: AtomicBool::new(options.nonblocking),
            timeout,
            selectable: None,
        })
    }

    /// Makes the descriptor that [`Control::selectable`] returns.
    pub(crate) fn make_selectable(&mut self) -> io::Result<()> {
        let any = AnyOf::new(self.devices.iter().map(Device::waits_on))?;
        let is_asked = AtomicBool::new(false);
        self.selectable = Some(Selectable { any, is_asked });
        Ok(())
    }

    /// Returns the descriptor to wait on for several devices. From the first call on it is readable
    /// only when a read would deliver packets.
    pub(crate) fn selectable(&self) -> Option<RawFd> {
        let Selectable { any, is_asked } = self.selectable.as_ref()?;
        is_asked.store(true, Ordering::Relaxed);
        Some(any.fd())
    }

    /// Sets what the application's descriptor waits for: the devices whose bit is set in `watched`,
    /// and the time `due`.
    pub(crate) fn announce(&self, watched: u64, due: Option<Duration>) {
        let asked = |selectable: &&Selectable| selectable.is_asked.load(Ordering::Relaxed);
        if let Some(Selectable { any, .. }) = self.selectable.as_ref().filter(asked) {
            let descriptors = self.devices.iter().map(Device::waits_on);
            // Best effort: the descriptor may be readable too often, or late by one packet.
            let _ = any.set(descriptors, watched, due);
        }
    }

    /// Ends the current read, or the next one. Async-signal-safe.
    pub(crate) fn break_loop(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.wake.signal();
    }

    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Whether the loop was broken. Resets the request.
    #[inline]
    pub(crate) fn take_break(&self) -> bool {
        self.is_broken() && self.broken.swap(false, Ordering::Relaxed)
    }

    /// Ends a read whose loop was broken, or that has delivered all the packets it may.
    #[inline]
    pub(crate) fn check_end(&self, call: &Call) -> Result<(), End> {
        if self.take_break() {
            return Err(End::Broken);
        }
        if call.is_done() {
            return Err(End::Delivered(call.delivered));
        }
        Ok(())
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    pub(crate) fn waits_for_ever(&self) -> bool {
        self.timeout.is_none() && !self.is_nonblocking()
    }

    pub(crate) fn is_net_down(&self) -> bool {
        self.devices.iter().any(Device::is_down)
    }
}

/// The device of one ring.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) port: Arc<dyn Port>,
    /// The device is down or gone.
    is_down: AtomicBool,
}

impl Device {
    fn new(port: Arc<dyn Port>) -> Self {
        let is_down = AtomicBool::new(false);
        Self { port, is_down }
    }

    pub(crate) fn waits_on(&self) -> BorrowedFd<'_> {
        self.port.waits_on()
    }

    /// Whether the device was down or gone when last checked.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Handles what poll(2) has `found` besides packets.
    pub(crate) fn check(&self, found: c_short) -> Result<(), End> {
        if self.port.check(found)? == LinkState::Down {
            self.is_down.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Asks the port whether the device is down or gone.
    pub(crate) fn look_after(&self) -> Result<(), End> {
        if self.port.link()? == LinkState::Up {
            self.is_down.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}
