//! A reader whose only device is gone, and comes back later: meanwhile the reader has no ring.

use crate::call::End;
use crate::control::Control;
use crate::lane::Lane;
use crate::port::Port;
use crate::reader::{Input, Reader};
use fanpcap_bpf::Classic;
use fanpcap_linux::wait;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Reader {
    /// Gives up the ring of the only device, which is gone, and everything of the device's group.
    /// Until [`Reader::renew`], `port` stands for the device: its descriptor is readable when the
    /// device may be back, and [`Port::link`] fails with the error of a device that is gone.
    /// Returns the application's filter.
    ///
    /// # Safety
    /// As [`Reader::next`].
    #[expect(unsafe_code, reason = "as `Reader::next`")]
    pub unsafe fn leave(&self, port: Arc<dyn Port>) -> Option<Vec<Classic>> {
        let control = self.control();
        control.is_away.store(true, Ordering::Relaxed);
        control.watch(false);
        // SAFETY: the caller's promise.
        let filter = unsafe { self.set_lanes(None) };
        let device = &control.devices[0];
        // SAFETY: the reading thread is here, and other threads have used the ports and timers of
        // the time before the device was last gone only in calls that have long returned.
        unsafe { device.renew(port) };
        control.watch(true);
        filter
    }

    /// Frees the port and the group tasks of the device that is gone, which [`Reader::leave`] has
    /// kept for other threads. `port` is as for that function.
    ///
    /// # Safety
    /// As [`Reader::next`].
    #[expect(unsafe_code, reason = "as `Reader::next`")]
    pub unsafe fn let_go(&self, port: Arc<dyn Port>) {
        // SAFETY: as in `leave`.
        unsafe { self.control().devices[0].renew(port) };
    }

    /// Reads `input` from now on: the device is back. The reader runs the application's filter.
    ///
    /// # Safety
    /// As [`Reader::next`].
    #[expect(unsafe_code, reason = "as `Reader::next`")]
    pub unsafe fn renew(&self, input: Input) {
        let control = self.control();
        control.watch(false);
        let lane = Lane::new(input.ring, input.timeout);
        // SAFETY: as for the port in `leave`.
        unsafe { control.devices[0].renew(input.port) };
        // SAFETY: the caller's promise.
        unsafe { self.set_lanes(Some(lane)) };
        control.is_away.store(false, Ordering::Relaxed);
        control.watch(true);
        control.announce(u64::MAX, None);
    }
}

impl Control {
    /// Waits until the device may be back, at most for `limit`. Returns false, and does not wait,
    /// if the application reads without waiting, or waits by itself: the read then ends without a
    /// packet. Makes the descriptor of such an application readable after `limit`.
    ///
    /// # Errors
    /// The application has broken the loop.
    pub fn await_return(&self, limit: Option<Duration>) -> Result<bool, End> {
        if self.take_break() {
            return Err(End::Broken);
        }
        if self.is_nonblocking() || self.is_asked() {
            self.announce(u64::MAX, limit);
            return Ok(false);
        }
        let device = self.devices[0].waits_on();
        let waited = wait::wait(Some(device), Some(&self.wake), limit);
        if let Some(woken) = self.woken(waited)? {
            self.check_break(woken.signalled)?;
        }
        Ok(true)
    }

    /// Adds the device's descriptor to those that make the application's descriptor readable, or
    /// removes it.
    fn watch(&self, watches: bool) {
        let device = &self.devices[0];
        if let Some(any) = self.selectable.get() {
            let tasks = device.timer.get().and_then(|timer| timer.descriptor());
            for fd in [Some(device.waits_on()), tasks].into_iter().flatten() {
                // Best effort, as `attend_to`.
                let _ = if watches { any.add(fd) } else { any.remove(fd) };
            }
        }
    }
}
