//! Merges several devices into one stream, in the order of time.
//!
//! The merge delivers a packet when no other device can still have an earlier packet. A device
//! can't have an earlier packet if the device's next packet is later, or if so much time has passed
//! that the kernel must have handed over all earlier packets. So the order costs a bounded delay.
//! The order costs no packets: when a ring fills up, the reader empties it without waiting.

use crate::call::{Call, End, Packet, Pause, Wait};
use crate::control::Control;
use crate::inherited::Inherited;
use crate::lane::Lane;
use fanpcap_linux::process::signal::Blocked;
use fanpcap_linux::wait::clock;
use fanpcap_ring::{Layout, Ring, Stamp};
use std::time::Duration;

/// The time after a block's time-out within which the kernel hands over the block. Timers of old
/// kernels tick every 4 ms.
const SLACK: Duration = Duration::from_millis(10);

/// The interval at which the reader checks whether a ring fills up while packets are held back.
const LOOK: Duration = Duration::from_millis(1);
/// [`LOOK`] for an application that waits in poll(2). The interval is longer, because at each check
/// such an application calls the library without getting a packet.
const LOOK_OF_OTHERS: Duration = Duration::from_millis(4);

/// If all rings are pools, the engine wakes a waiting reader early when this many bytes of records
/// have come on one CPU.
const MANY: u64 = 64 << 10;

/// The shortest wait for earlier packets in rings of records. With shorter waits, the reader would
/// wake for each packet that becomes old enough.
const SHORTEST: Duration = Duration::from_millis(4);

/// If an application's time-out is at least this long, the application may get packets later,
/// because [`LOOK`] and [`SHORTEST`] may lengthen a wait.
const PATIENT: Duration = Duration::from_millis(10);

/// The longest time by which a packet's time stamp may be ahead of the system's clock. A stamp
/// further ahead comes from another clock.
const AHEAD: Duration = Duration::from_secs(1);

/// The lanes of at most 64 devices.
pub(crate) struct Merge {
    pub(crate) lanes: Vec<Lane>,
    /// The rings that were taken over from other members. In the merge they come after the lanes.
    pub(crate) inherited: Vec<Inherited>,
    /// Whether all packets are held back ([`crate::TaskResult::holds`]).
    pub(crate) holds: bool,
    /// The arrival time of each lane's next packet, since 1970; `None` for an empty lane. The
    /// arrival times of `inherited` follow, and are never `None`.
    heads: Vec<Option<Duration>>,
    /// Whether there is a lane whose packets the kernel may hand over late.
    is_late: bool,
    /// The longest time from a packet's arrival until the kernel hands it over.
    delay: Duration,
    /// Packets older than this time, since 1970, may be delivered.
    horizon: Duration,
    /// Whether to deliver the next packet without waiting for other devices.
    hurried: bool,
    clock: fn() -> Duration,
}

/// The next action for the earliest packet.
enum Due {
    /// Deliver the packet of this lane.
    Now(usize),
    /// Wait this long for earlier packets.
    After(Duration),
    /// No lane has a packet, or all packets are held back.
    Never,
}

impl Merge {
    /// Merges lanes in which the kernel hands over each packet within `timeout`.
    pub(crate) fn new(lanes: Vec<Lane>, timeout: Option<Duration>) -> Self {
        let is_late = lanes.iter().any(|lane| !matches!(lane.ring, Ring::Pool(_)));
        let is_of_blocks = |lane: &Lane| !matches!(lane.ring, Ring::Pool(_) | Ring::Calls(_));
        let timeout = timeout.filter(|_| lanes.iter().any(is_of_blocks));
        Self {
            heads: vec![None; lanes.len()],
            lanes,
            inherited: Vec::new(),
            holds: false,
            is_late,
            delay: timeout.unwrap_or_default() + SLACK,
            horizon: Duration::ZERO,
            hurried: false,
            clock: || Duration::from_nanos(clock::realtime_ns()),
        }
    }

    /// Publishes the counters of each lane whose time to publish has come. Returns the time until
    /// the next publication; `None` if no lane will publish.
    fn handle_empty(&mut self) -> Option<Duration> {
        let lanes = self.lanes.iter_mut();
        let next = lanes.filter_map(|lane| lane.intake.handle_empty(lane.ring.taken()));
        next.min()
    }

    /// Lets the next packet be delivered without waiting for other devices. Returns false when
    /// there is no packet.
    pub(crate) fn hurry(&mut self) -> bool {
        self.hurried = self.heads.iter().any(Option::is_some);
        self.hurried
    }

    /// Reads the earliest packet of all lanes, if any lane has a packet. Not inlined: inlining
    /// would slow the loop of handles with one ring.
    #[inline(never)]
    pub(crate) fn next(
        &mut self,
        control: &Control,
        call: &mut Call,
        packet: &mut Packet,
    ) -> Result<(), Pause> {
        loop {
            self.look(control);
            let due = if self.holds {
                Due::Never
            } else {
                self.due(control)
            };
            if let Err(end) = control.check_end(call) {
                self.announce(control, &due);
                return Err(end.into());
            }
            if self.lanes.len() == 1 && self.inherited.is_empty() && !self.holds {
                return Err(Pause::Alone);
            }
            match due {
                Due::Now(lane) => {
                    call.begun = true;
                    self.hurried = false;
                    if self.next_of(lane, control, packet)? {
                        return Ok(());
                    }
                }
                Due::After(_) | Due::Never if ends(control, call) => {
                    self.handle_empty();
                    self.announce(control, &due);
                    return Err(End::Delivered(call.delivered).into());
                }
                Due::After(longest) => {
                    self.handle_empty();
                    return Err(Pause::Wait(self.wait_for_earlier(control, longest)));
                }
                Due::Never => {
                    let next = self.handle_empty();
                    if !control.is_nonblocking() {
                        let lanes = self.lanes.iter();
                        lanes.for_each(|lane| lane.intake.handle_idle(lane.ring.taken()));
                    }
                    return Err(Pause::Wait(Wait::Any(self.empty(), next, 1)));
                }
            }
        }
    }

    /// Reads the next frame of this lane. Returns false when the application does not want the
    /// frame.
    fn next_of(
        &mut self,
        lane: usize,
        control: &Control,
        packet: &mut Packet,
    ) -> Result<bool, End> {
        let after_lanes = lane.checked_sub(self.lanes.len());
        if let Some(inherited) = after_lanes.and_then(|lane| self.inherited.get_mut(lane)) {
            // While all packets come from other members' rings, no frame of a lane makes the lane's
            // publisher read the clock. So the publishers read it here.
            self.lanes.iter_mut().for_each(|lane| lane.look(control));
            return Ok(inherited.next_packet(control, packet));
        }
        if self.lanes[lane].is_about_to_look() {
            // Lanes without packets need this call too: no frame makes their publishers read the
            // clock.
            self.handle_empty();
        }
        let Lane { ring, intake } = &mut self.lanes[lane];
        intake.next_packet(ring, control, packet)
    }

    /// Reads the arrival time of each lane's next packet.
    fn look(&mut self, control: &Control) {
        for (head, lane) in self.heads.iter_mut().zip(&mut self.lanes) {
            *head = lane.head().map(since_1970);
        }
        self.heads.truncate(self.lanes.len());
        if !self.inherited.is_empty() {
            self.share_offset();
            self.look_at_inherited(control);
        }
    }

    /// Lets all pools convert their stamps by the newest reading of the clock. With two readings,
    /// two packets of a flow might change their order.
    #[cold]
    #[inline(never)]
    fn share_offset(&mut self) {
        let own = self.lanes.iter().filter_map(|it| it.ring.offset());
        let all = own.chain(self.inherited.iter().filter_map(Inherited::offset));
        let Some(newest) = all.max() else {
            return;
        };
        for (head, lane) in self.heads.iter_mut().zip(&mut self.lanes) {
            if lane.ring.adopt_offset(newest) {
                *head = lane.head().map(since_1970);
            }
        }
        let inherited = self.inherited.iter_mut();
        inherited.for_each(|it| it.adopt_offset(newest));
    }

    /// Reads the arrival times of the next packets in rings taken over from other members. Removes
    /// each ring that is read to its end.
    #[cold]
    #[inline(never)]
    fn look_at_inherited(&mut self, control: &Control) {
        let mut at = 0;
        while let Some(lane) = self.inherited.get_mut(at) {
            if let Some(stamp) = lane.head() {
                self.heads.push(Some(since_1970(stamp)));
                at += 1;
            } else {
                let _signals = Blocked::new();
                self.inherited.remove(at).end();
                control.call_groups();
            }
        }
    }

    /// The earliest packet's lane and time. Packets of a burst may have the same time. Then a
    /// flow's packets in a ring that was taken over are earlier, because the flow has moved from
    /// there.
    fn earliest(&self) -> Option<(usize, Duration)> {
        let times = self.heads.iter().enumerate();
        let times = times.filter_map(|(lane, head)| Some((lane, (*head)?)));
        times.min_by_key(|(lane, time)| (*time, *lane < self.lanes.len()))
    }

    /// Finds the earliest packet, and decides whether to deliver it now or to wait.
    fn due(&mut self, control: &Control) -> Due {
        let Some((lane, time)) = self.earliest() else {
            return Due::Never;
        };
        // A packet held back in another member's ring does not wake an application that waits only
        // for packets of the device. So no packet is held back for such an application.
        let is_deaf = !self.inherited.is_empty() && control.waits_for_packets_alone();
        let at_once = self.hurried
            || is_deaf
            || self.heads.iter().all(Option::is_some)
            || self.lanes.iter().any(|lane| lane.ring.is_filling());
        match if at_once { None } else { self.wait(time) } {
            None => Due::Now(lane),
            Some(Duration::ZERO) => {
                // The kernel may have handed over earlier packets after the lanes were read and
                // before the clock was read.
                self.look(control);
                self.earliest().map_or(Due::Never, |it| Due::Now(it.0))
            }
            Some(wait) => Due::After(wait),
        }
    }

    /// The time that a packet with the arrival time `time` must still wait for earlier packets;
    /// `None`: the packet need not wait. Zero: the packet need not wait either, but earlier packets
    /// may have come after the lanes were read.
    fn wait(&mut self, time: Duration) -> Option<Duration> {
        // If `time` is far before the horizon, the clock may have been set back.
        if time <= self.horizon && self.horizon - time < AHEAD {
            return None;
        }
        let now = (self.clock)();
        if time > now + AHEAD {
            // The time stamps come from another clock, so waiting is useless.
            return None;
        }
        self.horizon = now.saturating_sub(self.delay);
        Some(time.saturating_sub(self.horizon))
    }

    /// The way to wait for packets that are earlier than the packet held back. After the time
    /// `longest`, the packet held back is delivered in any case.
    fn wait_for_earlier(&self, control: &Control, longest: Duration) -> Wait {
        let is_patient = control.timeout.is_none_or(|timeout| timeout >= PATIENT);
        match is_patient && !control.is_asked() {
            true if !self.is_late => Wait::Any(u64::MAX, Some(longest.max(SHORTEST)), MANY),
            true => Wait::Any(self.empty(), Some(LOOK), 1),
            false => Wait::Any(self.empty(), Some(longest.min(LOOK)), 1),
        }
    }

    /// Makes an application that waits in poll(2) wait for the same devices and time as the reader
    /// would.
    fn announce(&self, control: &Control, due: &Due) {
        let due = match due {
            Due::Now(_) => Some(Duration::ZERO),
            Due::After(wait) => Some((*wait).min(LOOK_OF_OTHERS)),
            Due::Never => None,
        };
        control.announce(self.empty(), due);
    }

    /// The lanes without a packet, one bit each.
    fn empty(&self) -> u64 {
        let bits = self.heads.iter().take(self.lanes.len()).enumerate();
        bits.fold(0, |bits, (lane, head)| {
            bits | (u64::from(head.is_none()) << lane)
        })
    }
}

fn ends(control: &Control, call: &Call) -> bool {
    let may_be_empty = control.is_nonblocking() || control.may_be_empty(call);
    call.delivered > 0 || (call.begun && may_be_empty)
}

fn since_1970(stamp: Stamp) -> Duration {
    Duration::new(stamp.seconds.into(), stamp.nanoseconds)
}

#[cfg(test)]
mod tests;
