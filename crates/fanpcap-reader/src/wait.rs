//! Waits at an empty ring, as the system's libpcap does (pcap-linux.c,
//! `pcap_wait_for_frames_mmap`).

use crate::call::{Call, End, Wait};
use crate::control::{Control, Device};
use crate::group_tasks::TaskTimer;
use fanpcap_linux::wait::{self, POLLIN, Wake, Woken};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// The interval at which the reader checks whether a device that is down is up again, or gone.
const NET_DOWN_INTERVAL: Duration = Duration::from_millis(1);

impl Control {
    /// Waits as `wait` says, unless the application breaks the loop or a device fails. A
    /// non-blocking reader only checks. Returns true when the reader must run group tasks.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait(&self, wait: Wait, call: &mut Call) -> Result<bool, End> {
        // Check before the wait: tasks that become due during the wait have not woken the
        // application.
        let was_woken = self.has_group_tasks() && self.was_woken(call);
        match wait {
            Wait::Rest(rest) => self.rest(rest).inspect_err(|_| self.announce_now()),
            Wait::Packets(longest) => {
                let (is_own, is_called) = self.wait_for_packets(longest)?;
                // The application must not notice a wait that ended for the reader's own reasons,
                // unless it was woken for group tasks, and does not expect the read to wait.
                call.begun |= is_own || (is_called && was_woken);
                Ok(is_called)
            }
            Wait::Any(devices, longest, after) => {
                let is_called = self.wait_for_any(devices, longest, after)?;
                call.begun |= self.is_nonblocking() || (is_called && was_woken);
                Ok(is_called)
            }
        }
    }

    /// Waits for packets of the only device. Returns whether the wait was the application's own,
    /// and whether the reader must run group tasks. The wait was not the application's own if it
    /// ended for the reader's work, and must be repeated: `longest` has passed, a signal has come,
    /// another thread has nudged the reader, group tasks are due, or the device is down.
    fn wait_for_packets(&self, longest: Option<Duration>) -> Result<(bool, bool), End> {
        let device = &self.devices[0];
        let blocking = !self.is_nonblocking();
        if blocking && !device.port().arm(1) {
            return Ok((false, self.is_called(false)));
        }
        let wake = blocking.then_some(&self.wake);
        let limits = [longest, limit(blocking, device.is_down())];
        let (woken, is_called) = self.wait_for_one(Some(device.waits_on()), wake, limits)?;
        if let Some(woken) = woken {
            device.check(woken.socket)?;
            // A descriptor other than a socket also becomes readable when the device goes down.
            let is_down = device.is_down() && !device.port().is_socket();
            if woken.socket == POLLIN && !is_down {
                return Ok((true, is_called));
            }
            self.check_break(woken.signalled)?;
        }
        if device.is_down() {
            device.look_after()?;
        }
        Ok((!blocking, is_called))
    }

    /// Waits until a device whose bit is set in `devices` may have got as many packets as `after`
    /// says, or until `longest` has passed.
    fn wait_for_any(
        &self,
        devices: u64,
        longest: Option<Duration>,
        after: u64,
    ) -> Result<bool, End> {
        let blocking = !self.is_nonblocking();
        if blocking && !self.arm(devices, after) {
            return Ok(self.is_called(false));
        }
        // Polls only watched devices: the descriptor of a device whose lane has a packet is always
        // readable, and would end the wait.
        let watched = self.devices.iter().enumerate().map(|(index, device)| {
            let is_watched = (devices >> index) & 1 == 1;
            is_watched.then(|| device.waits_on())
        });
        let watched = watched.chain(self.timers().map(TaskTimer::waits_on));
        let wake = blocking.then_some(&self.wake);
        let limit = self.least([longest, limit(blocking, self.is_net_down())]);
        let mut is_called = false;
        if let Some((found, signalled)) = self.woken(wait::wait_for_any(watched, wake, limit))? {
            let (found, called) = found.split_at(self.devices.len());
            is_called = called.iter().any(|&found| found != 0);
            for (device, &found) in self.devices.iter().zip(found) {
                device.check(found)?;
            }
            self.check_break(signalled)?;
        }
        let mut down = self.devices.iter().filter(|device| device.is_down());
        down.try_for_each(Device::look_after)?;
        Ok(self.is_called(is_called))
    }

    /// Rests, unless a packet has no room. The next wait for packets finds what else has happened
    /// to the device.
    fn rest(&self, rest: Duration) -> Result<bool, End> {
        let device = &self.devices[0];
        let drops = device.port().rest().then(|| device.waits_on());
        let limits = [Some(rest), None];
        let (woken, is_called) = self.wait_for_one(drops, Some(&self.wake), limits)?;
        self.check_break(woken.is_some_and(|woken| woken.signalled))?;
        Ok(is_called)
    }

    /// Waits for `watched`, for `wake`, or until group tasks are due, at most for the lesser of the
    /// limits. Returns what has ended the wait, unless it was a signal, and whether the reader must
    /// run group tasks.
    fn wait_for_one(
        &self,
        watched: Option<BorrowedFd<'_>>,
        wake: Option<&Wake>,
        limits: [Option<Duration>; 2],
    ) -> Result<(Option<Woken>, bool), End> {
        let tasks = self.devices[0].timer.get().and_then(TaskTimer::waits_on);
        let waited = wait::wait_for_two(watched, tasks, wake, self.least(limits));
        let woken = self.woken(waited)?;
        let is_called = self.is_called(woken.is_some_and(|woken| woken.called));
        Ok((woken, is_called))
    }

    /// Whether group tasks are due: their descriptor is readable (`called`), or their time has
    /// come.
    #[cold]
    #[inline(never)]
    fn is_called(&self, called: bool) -> bool {
        called || self.due().is_some_and(|due| due.is_zero())
    }

    /// Returns `None` when a signal has ended the wait. Ends the read if the signal handler has
    /// broken the loop.
    pub(crate) fn woken<T>(&self, waited: io::Result<T>) -> Result<Option<T>, End> {
        match waited {
            Ok(woken) => Ok(Some(woken)),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(self.devices[0].port().poll_error(error).into())
            }
            Err(_) if self.take_break() => Err(End::Broken),
            Err(_) => Ok(None),
        }
    }

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

/// The longest wait; `None`: no limit.
fn limit(blocking: bool, is_down: bool) -> Option<Duration> {
    match blocking {
        false => Some(Duration::ZERO),
        true => is_down.then_some(NET_DOWN_INTERVAL),
    }
}
