//! Waits at an empty ring, as the system's libpcap does (pcap-linux.c,
//! `pcap_wait_for_frames_mmap`).

use crate::call::{Call, End, Wait};
use crate::control::{Control, Device};
use fanpcap_linux::wait::{self, POLLIN, Woken};
use std::io;
use std::time::Duration;

/// How often to check whether a device that is down is up again or gone.
const NET_DOWN_INTERVAL: Duration = Duration::from_millis(1);

impl Control {
    /// Waits as `wait` says, unless the application breaks the loop or a device fails. A
    /// non-blocking reader only checks.
    #[cold]
    pub(crate) fn wait(&self, wait: Wait, call: &mut Call) -> Result<(), End> {
        match wait {
            Wait::Rest(rest) => return self.rest(rest),
            Wait::Packets(longest) => {
                if !self.wait_for_packets(longest)? {
                    // The application must not notice this wait, which is not its own.
                    return Ok(());
                }
            }
            Wait::Any(devices, longest) => self.wait_for_any(devices, longest)?,
        }
        call.begun = true;
        Ok(())
    }

    /// Waits for packets of the only device. Returns false when the reader must publish or look
    /// again: `longest` has passed, a signal has come, or another thread has nudged the reader.
    fn wait_for_packets(&self, longest: Option<Duration>) -> Result<bool, End> {
        let device = &self.devices[0];
        let blocking = !self.is_nonblocking();
        loop {
            let wake = blocking.then_some(&self.wake);
            let limits = [longest, limit(blocking, device.is_down())];
            let limit = limits.into_iter().flatten().min();
            let woken = self.woken(wait::wait(Some(device.waits_on()), wake, limit))?;
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

    /// Waits until a device whose bit is set may have a packet, or `longest` is over.
    fn wait_for_any(&self, devices: u64, longest: Option<Duration>) -> Result<(), End> {
        let blocking = !self.is_nonblocking();
        // The descriptor of a device whose lane has a packet is readable all the time.
        let watched = self.devices.iter().enumerate().map(|(index, device)| {
            let is_watched = (devices >> index) & 1 == 1;
            is_watched.then(|| device.waits_on())
        });
        let wake = blocking.then_some(&self.wake);
        let bounds = [longest, limit(blocking, self.is_net_down())];
        let limit = bounds.into_iter().flatten().min();
        if let Some((found, signalled)) = self.woken(wait::wait_for_any(watched, wake, limit))? {
            for (device, found) in self.devices.iter().zip(found) {
                device.check(found)?;
            }
            self.check_break(signalled)?;
        }
        let mut down = self.devices.iter().filter(|device| device.is_down());
        down.try_for_each(Device::look_after)
    }

    /// Leaves a busy ring alone for a while.
    fn rest(&self, rest: Duration) -> Result<(), End> {
        match self.woken(wait::wait(None, Some(&self.wake), Some(rest)))? {
            Some(woken) => self.check_break(woken.signalled),
            None => Ok(()),
        }
    }

    /// `None` when a signal handler has run: the application may have broken the loop in it.
    fn woken<T>(&self, waited: io::Result<T>) -> Result<Option<T>, End> {
        match waited {
            Ok(woken) => Ok(Some(woken)),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(self.devices[0].port.poll_error(error).into())
            }
            Err(_) if self.take_break() => Err(End::Broken),
            Err(_) => Ok(None),
        }
    }

    /// Ends the read if the loop was broken.
    fn check_break(&self, signalled: bool) -> Result<(), End> {
        if signalled {
            self.wake.clear();
            if self.take_break() {
                return Err(End::Broken);
            }
        }
        Ok(())
    }
}

/// The longest wait; `None`: no limit.
fn limit(blocking: bool, is_down: bool) -> Option<Duration> {
    match blocking {
        false => Some(Duration::ZERO),
        true => is_down.then_some(NET_DOWN_INTERVAL),
    }
}
