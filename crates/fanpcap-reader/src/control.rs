//! The part of a reader that other threads may use while one thread reads.

use crate::accept::{Direction, NO_TAG, Options, Wanted};
use crate::call::{Call, End};
use crate::group_tasks::{GroupTasks, TaskTimer};
use crate::port::{LinkState, Port, ReadError};
use crate::publish::Publisher;
use fanpcap_linux::wait::{AnyOf, Wake};
use fanpcap_ring::{Handover, Renewable};
use std::ffi::c_short;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The state that the reading thread shares with other threads. Any thread may call its functions.
pub struct Control {
    pub(crate) devices: Vec<Device>,
    pub(crate) wanted: Wanted,
    pub(crate) wake: Wake,
    /// Whether the reader must look, before the next packet, for group tasks, a new filter or a new
    /// publisher.
    pub(crate) has_news: AtomicBool,
    broken: AtomicBool,
    nonblocking: AtomicBool,
    /// The longest time from a packet's arrival to its delivery; `None`: no limit
    /// (pcap_set_timeout(3PCAP)).
    pub(crate) timeout: Option<Duration>,
    /// The descriptor that [`Control::selectable`] returns. Empty as long as an application that
    /// calls select(2) or poll(2) can use the descriptor of the only port.
    pub(crate) selectable: OnceLock<AnyOf>,
    is_asked: AtomicBool,
    /// Whether [`Control::announce_now`] has made the descriptor readable, because packets are
    /// unread.
    is_announced: AtomicBool,
    /// Packets that an engine has counted as received and the reader's filter has rejected.
    pub(crate) rejected: AtomicU64,
    /// Whether the only device is gone, and the reader waits for its return.
    pub(crate) is_away: AtomicBool,
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
            has_news: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            nonblocking: AtomicBool::new(options.nonblocking),
            timeout,
            selectable: OnceLock::new(),
            is_asked: AtomicBool::new(false),
            is_announced: AtomicBool::new(false),
            rejected: AtomicU64::new(0),
            is_away: AtomicBool::new(false),
        })
    }

    /// Makes applications that wait in poll(2) wait on a descriptor of the reader's from their next
    /// question on, also if the port's own descriptor would do. It does not for several devices,
    /// for a device on an engine without packet sockets, and for a member that has group tasks.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub fn be_selectable(&self) -> io::Result<()> {
        let devices = self.devices.iter().map(Device::waits_on);
        let groups = self.timers().filter_map(TaskTimer::descriptor);
        // If two threads make the descriptor at the same time, the second one drops its descriptor.
        let _ = self.selectable.set(AnyOf::new(devices.chain(groups))?);
        Ok(())
    }

    /// Returns the descriptor for select(2) and poll(2); `None` if the application waits on the
    /// only port's own descriptor instead. From the first call on, the returned descriptor is
    /// readable only when a read would deliver packets or run group tasks.
    pub fn selectable(&self) -> Option<RawFd> {
        let is_first = !self.is_asked.swap(true, Ordering::Relaxed);
        let has_group_tasks = self.has_group_tasks();
        if is_first && has_group_tasks && self.selectable.get().is_none() {
            // Best effort: without the descriptor, the reader runs group tasks only when it reads.
            let _ = self.be_selectable();
        }
        let any = self.selectable.get()?;
        if is_first {
            self.announce(u64::MAX, None);
        }
        Some(any.fd())
    }

    /// Whether the application waits on the descriptor of the handle's only port. This descriptor
    /// wakes the application for packets, but not for group tasks.
    pub(crate) fn waits_for_packets_alone(&self) -> bool {
        self.is_asked() && self.selectable.get().is_none()
    }

    /// Whether the application itself waits in select(2) or poll(2), on the reader's descriptor.
    pub fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }

    /// Sets when the application's descriptor becomes readable: when a device whose bit is set in
    /// `watched` has a packet, or when the time `due` has passed.
    pub(crate) fn announce(&self, watched: u64, due: Option<Duration>) {
        self.announce_after(watched, due, 1);
    }

    /// Makes the application's descriptor readable, because packets are unread.
    #[cold]
    #[inline(never)]
    pub(crate) fn announce_now(&self) {
        if self.is_asked() && !self.is_announced.load(Ordering::Relaxed) {
            self.announce_after(0, Some(Duration::ZERO), 1);
            self.is_announced.store(true, Ordering::Relaxed);
        }
    }

    /// Like [`Control::announce`], but a device must have got as many bytes as `after` says.
    pub(crate) fn announce_after(&self, watched: u64, due: Option<Duration>, after: u64) {
        if let Some(any) = self.selectable.get().filter(|_| self.is_asked()) {
            self.is_announced.store(false, Ordering::Relaxed);
            let is_armed = self.arm(watched, after);
            let due = if is_armed { due } else { Some(Duration::ZERO) };
            let devices = self.devices.iter().enumerate();
            let devices =
                devices.map(|(index, device)| (device.waits_on(), (watched >> index) & 1 == 1));
            let groups = self.timers().filter_map(|timer| {
                let descriptor = timer.descriptor()?;
                Some((descriptor, timer.heeds_descriptor()))
            });
            // Best effort: if the call fails, the descriptor may become readable too often, or one
            // packet late.
            let _ = any.set(devices.chain(groups), self.least([due, None]));
        }
    }

    /// Asks the engine to wake the reader when a device whose bit is set in `devices` has got as
    /// many bytes as `after` says. Returns false when they are there already. The reader must
    /// not wait in that case.
    pub(crate) fn arm(&self, devices: u64, after: u64) -> bool {
        let watched = self.devices.iter().enumerate();
        let mut watched = watched.filter(|(index, _)| (devices >> index) & 1 == 1);
        watched.all(|(_, device)| device.port().arm(after))
    }

    /// Runs group tasks from the next read on, because the handle has just become a member on this
    /// device. Called once for each device. A reader that never waits runs the tasks only if it
    /// also publishes counters ([`Reader::keep`](crate::Reader::keep)).
    ///
    /// Returns false when the application has already got the port's own descriptor to wait on. The
    /// application keeps that descriptor. So the application reads, and the reader runs the tasks,
    /// only when packets come.
    pub fn attend_to(&self, device: usize, tasks: Arc<dyn GroupTasks>) -> bool {
        let Some(device) = self.devices.get(device) else {
            return false;
        };
        if device.timer.fill(Box::new(TaskTimer::new(tasks))) {
            let descriptor = device.timer.get().and_then(TaskTimer::descriptor);
            if let (Some(any), Some(descriptor)) = (self.selectable.get(), descriptor) {
                // Best effort: if the call fails, the reader runs group tasks only when it reads.
                let _ = any.add(descriptor);
                self.announce(u64::MAX, None);
            }
            self.give_news();
            self.wake.signal();
        }
        !self.waits_for_packets_alone()
    }

    pub(crate) fn timers(&self) -> impl Iterator<Item = &TaskTimer> {
        self.devices.iter().filter_map(|device| device.timer.get())
    }

    /// The least of the limits and of the time until group tasks are due.
    pub(crate) fn least(&self, limits: [Option<Duration>; 2]) -> Option<Duration> {
        limits.into_iter().chain([self.due()]).flatten().min()
    }

    /// The time until group tasks are due, if their descriptor does not become readable.
    #[cold]
    #[inline(never)]
    pub(crate) fn due(&self) -> Option<Duration> {
        self.timers().filter_map(TaskTimer::due).min()
    }

    /// Whether the handle is a member of a group that may have tasks for the reader.
    pub(crate) fn has_group_tasks(&self) -> bool {
        self.timers().next().is_some()
    }

    /// Makes the reader run its group tasks next, because it has read an inherited ring to the end.
    #[cold]
    #[inline(never)]
    pub(crate) fn call_groups(&self) {
        self.timers().for_each(TaskTimer::call);
        self.give_news();
    }

    /// Makes the reader look for group tasks, a new filter or a new publisher before the next
    /// packet.
    pub(crate) fn give_news(&self) {
        self.has_news.store(true, Ordering::Release);
    }

    /// Ends the current read, or the next one. Async-signal-safe.
    pub fn break_loop(&self) {
        self.broken.store(true, Ordering::Relaxed);
        self.wake.signal();
    }

    /// Wakes a waiting reader, so that it decides again what to publish and how long to wait.
    pub fn nudge(&self) {
        self.wake.signal();
    }

    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Whether the application has broken the loop. Clears the flag `broken`.
    #[inline]
    pub(crate) fn take_break(&self) -> bool {
        self.is_broken() && self.broken.swap(false, Ordering::Relaxed)
    }

    /// Whether the application may have waited in poll(2) and been woken before the read: its
    /// descriptor was readable. If so, the read does not wait. Must be called before anything that
    /// changes whether the descriptor is readable.
    #[cold]
    #[inline(never)]
    pub(crate) fn was_woken(&self, call: &mut Call) -> bool {
        *call.woken.get_or_insert_with(|| {
            let any = self.selectable.get().filter(|_| self.is_asked());
            any.is_some_and(|any| any.is_ready().unwrap_or(false))
        })
    }

    /// Whether the read may end without a packet, because the application may have been woken from
    /// poll(2).
    pub(crate) fn may_be_empty(&self, call: &Call) -> bool {
        self.is_asked() && call.woken != Some(false)
    }

    /// Ends a read whose loop was broken, or that has delivered as many packets as it may.
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

    /// Packets that an engine counted as received and the reader's filter rejected. The reader
    /// filters too, because the engine may run no filter, or may run it only on received packets.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Chooses whether reads wait.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Chooses packets by their direction.
    pub fn set_direction(&self, direction: Direction) {
        let direction = direction as u8;
        self.wanted.direction.store(direction, Ordering::Relaxed);
    }

    /// Sets the offset in the frame at which the reader re-inserts VLAN tags. `None`: it re-inserts
    /// none.
    pub fn set_tag_at(&self, at: Option<u8>) {
        let at = at.unwrap_or(NO_TAG);
        self.wanted.tag_at.store(at, Ordering::Relaxed);
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    pub(crate) fn waits_for_ever(&self) -> bool {
        self.timeout.is_none() && !self.is_nonblocking()
    }

    /// Whether the read must not end without the error that a device is gone. If the read ended, an
    /// application that waits in poll(2) would not notice: the socket reports its error only once.
    pub(crate) fn must_fail(&self) -> bool {
        self.devices.iter().any(Device::is_gone) && self.is_asked()
    }

    /// Whether a device is down or gone. If so, an application that calls select(2) must read at
    /// intervals (pcap_get_required_select_timeout(3PCAP)).
    pub fn is_net_down(&self) -> bool {
        !self.is_away() && self.devices.iter().any(Device::is_down)
    }

    /// Whether the packets come through the handle's packet socket, so that the application can
    /// wait for packets on the socket's descriptor.
    pub fn is_socket(&self) -> bool {
        let mut devices = self.devices.iter();
        devices.all(|device| device.port().is_socket())
    }

    /// Whether the reader has left its device, which is gone.
    #[inline]
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }
}

pub(crate) struct Device {
    port: Renewable<Arc<dyn Port>>,
    is_down: AtomicBool,
    is_gone: AtomicBool,
    /// Set when the handle becomes a member of a group that has tasks for the reader.
    pub(crate) timer: Renewable<TaskTimer>,
    /// The newest publisher of the device's counters, until the reading thread takes it.
    pub(crate) publisher: Handover<Publisher>,
}

impl Device {
    fn new(port: Arc<dyn Port>) -> Self {
        Self {
            port: Renewable::new(Some(Box::new(port))),
            is_down: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            timer: Renewable::new(None),
            publisher: Handover::default(),
        }
    }

    /// Replaces the port of a device that is gone or has come back, and forgets its group. The
    /// former port lives until the next call, and may keep descriptors of its group open. Every
    /// port must be dropped before the membership's `later` (fanpcap-group), if no thread is to
    /// wait for what the kernel releases slowly. So only the port of a device that is gone may live
    /// on here.
    ///
    /// # Safety
    /// As [`Renewable::replace`].
    #[expect(unsafe_code, reason = "as `Reader::next`")]
    pub(crate) unsafe fn renew(&self, port: Arc<dyn Port>) {
        // SAFETY: the caller's promise.
        unsafe { self.port.replace(Some(Box::new(port))) };
        // SAFETY: the caller's promise.
        unsafe { self.timer.replace(None) };
        self.is_down.store(false, Ordering::Relaxed);
        self.is_gone.store(false, Ordering::Relaxed);
    }

    pub(crate) fn port(&self) -> &Arc<dyn Port> {
        self.port.get().expect("a device always has a port")
    }

    pub(crate) fn waits_on(&self) -> BorrowedFd<'_> {
        self.port().waits_on()
    }

    /// Whether the device was down or gone when last checked.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Whether the device was gone when last checked. No packet is on its way into its ring.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Handles the events `found` that poll(2) has returned, except packets.
    pub(crate) fn check(&self, found: c_short) -> Result<(), End> {
        if self.port().check(found)? == LinkState::Down {
            self.is_down.store(true, Ordering::Relaxed);
            if let Some(timer) = self.timer.get() {
                timer.note_down();
            }
        }
        Ok(())
    }

    /// Treats the device as down, so that the next wait asks the port whether the device is up.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_lost(&self) {
        self.is_down.store(true, Ordering::Relaxed);
        if let Some(timer) = self.timer.get() {
            timer.call();
        }
    }

    /// Asks the port for the link's state, and notes when the device is up again.
    pub(crate) fn look_after(&self) -> Result<(), End> {
        let state = self.port().link();
        let is_gone = state.as_ref().is_err_and(ReadError::is_gone);
        self.is_gone.store(is_gone, Ordering::Relaxed);
        if state? == LinkState::Up {
            self.is_down.store(false, Ordering::Relaxed);
        }
        Ok(())
    }
}
