//! Several devices in one stream, in the order of time.
//!
//! A packet is delivered when every other device has a later one, or could no longer come with an
//! earlier one: when the time is over after which the kernel hands over what it has. So order costs a
//! delay, but a bounded one; and no packet is lost for it: a ring that fills is read without waiting.

use crate::call::{Call, End, Packet, Pause, Wait};
use crate::lane::{Device, Lane};
use crate::reader::Reader;
use crate::wait::limit;
use fanpcap_bpf::Classic;
use fanpcap_linux::wait;
use fanpcap_ring::Stamp;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How much later than it should the kernel may hand over a block: timers of old kernels tick every 4 ms.
const SLACK: Duration = Duration::from_millis(10);

/// How often to look whether a ring fills while its packets are held back.
const LOOK: Duration = Duration::from_millis(1);
/// The same for a program that waits by itself, for which a look is a call in vain.
const LOOK_OF_OTHERS: Duration = Duration::from_millis(4);

/// How far ahead of the system's clock a stamp of that clock can be.
const AHEAD: Duration = Duration::from_secs(1);

/// The lanes of several devices, no more than 64.
#[derive(Debug)]
pub(crate) struct Merge {
    lanes: Vec<Lane>,
    /// When each lane's next packet arrived, since 1970; none where it has none.
    heads: Vec<Option<Duration>>,
    /// After this time no device comes with an earlier packet.
    delay: Duration,
    /// What is older than this, since 1970, may be delivered.
    horizon: Duration,
    /// The next packet is delivered without waiting for others.
    hurried: bool,
}

/// What is to be done about the packet that is the earliest.
enum Turn {
    /// Deliver it: it is this lane's.
    Now(usize),
    /// Wait for earlier ones.
    After(Duration),
    /// There is none.
    Never,
}

impl Merge {
    /// Merges lanes of which the kernel hands over each packet within `timeout`.
    pub(crate) fn new(lanes: Vec<Lane>, timeout: Option<Duration>) -> Self {
        Self {
            heads: vec![None; lanes.len()],
            lanes,
            delay: timeout.unwrap_or_default() + SLACK,
            horizon: Duration::ZERO,
            hurried: false,
        }
    }

    pub(crate) fn set_filter(&mut self, filter: &[Classic], in_kernel: bool) {
        for lane in &mut self.lanes {
            lane.set_filter(filter.to_vec(), in_kernel);
        }
    }

    /// The lane of the device that has this index.
    pub(crate) fn lane(&mut self, device: usize) -> Option<&mut Lane> {
        self.lanes.get_mut(device)
    }

    /// The application begins to wait for packets, or has waited.
    pub(crate) fn note_wait(&self, waits: bool) {
        self.lanes.iter().for_each(|lane| lane.note_wait(waits));
    }

    /// Publishes the lanes' counters when it is time, and tells when it will be.
    fn handle_empty(&mut self) -> Option<Duration> {
        self.lanes.iter_mut().filter_map(Lane::handle_empty).min()
    }

    /// Lets the next packet be delivered without waiting for others. False when there is none.
    pub(crate) fn hurry(&mut self) -> bool {
        self.hurried = self.heads.iter().any(Option::is_some);
        self.hurried
    }

    /// Looks what each lane has.
    fn look(&mut self) {
        for (head, lane) in self.heads.iter_mut().zip(&mut self.lanes) {
            *head = lane.head().map(since_1970);
        }
    }

    /// Whose turn it is.
    fn turn(&mut self) -> Turn {
        let times = self.heads.iter().enumerate();
        let times = times.filter_map(|(lane, head)| Some((lane, (*head)?)));
        let Some((lane, time)) = times.min_by_key(|(_, time)| *time) else {
            return Turn::Never;
        };
        let at_once = self.hurried
            || self.heads.iter().all(Option::is_some)
            || self.lanes.iter().any(|lane| lane.ring.is_filling());
        let wait = if at_once { None } else { self.wait(time) };
        wait.map_or(Turn::Now(lane), Turn::After)
    }

    /// How long a packet of this time must still wait for earlier ones; none when no longer.
    fn wait(&mut self, time: Duration) -> Option<Duration> {
        // Unless the clock has been set back since.
        if time <= self.horizon && self.horizon - time < AHEAD {
            return None;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default();
        if time > now + AHEAD {
            // The stamps are of another clock: there is nothing to wait for.
            return None;
        }
        self.horizon = now.saturating_sub(self.delay);
        Some(time.saturating_sub(self.horizon)).filter(|wait| !wait.is_zero())
    }

    /// The lanes without a packet, a bit each.
    fn empty(&self) -> u64 {
        let bits = self.heads.iter().enumerate();
        bits.fold(0, |bits, (lane, head)| {
            bits | (u64::from(head.is_none()) << lane)
        })
    }
}

fn since_1970(stamp: Stamp) -> Duration {
    Duration::new(stamp.seconds.into(), stamp.nanoseconds)
}

impl Reader {
    pub(crate) fn next_of_several(
        &self,
        merge: &mut Merge,
        call: &mut Call,
        packet: &mut Packet,
    ) -> Result<(), Pause> {
        loop {
            merge.look();
            let turn = merge.turn();
            if let Err(end) = self.check_end(call) {
                self.announce(merge, &turn);
                return Err(end.into());
            }
            match turn {
                Turn::Now(lane) => {
                    call.begun = true;
                    merge.hurried = false;
                    if merge.lanes[lane].is_about_to_look() {
                        // For those too that have no packets to look with.
                        merge.handle_empty();
                    }
                    if merge.lanes[lane].next_packet(&self.wanted, packet)? {
                        return Ok(());
                    }
                }
                Turn::After(_) | Turn::Never if self.ends(call) => {
                    merge.handle_empty();
                    self.announce(merge, &turn);
                    return Err(End::Delivered(call.delivered).into());
                }
                Turn::After(longest) => {
                    merge.handle_empty();
                    let longest = Some(longest.min(LOOK));
                    return Err(Pause::Wait(Wait::Any(merge.empty(), longest)));
                }
                Turn::Never => {
                    let next = merge.handle_empty();
                    if merge.lanes.iter().all(Lane::has_told) && !self.is_nonblocking() {
                        merge.lanes.iter().for_each(Lane::handle_idle);
                    }
                    return Err(Pause::Wait(Wait::Any(merge.empty(), next)));
                }
            }
        }
    }

    /// Whether a read ends that has nothing to deliver now.
    fn ends(&self, call: &Call) -> bool {
        call.delivered > 0 || (call.begun && self.is_nonblocking())
    }

    /// Has a program that waits by itself wait for what a reader would wait for.
    fn announce(&self, merge: &Merge, turn: &Turn) {
        let Some(selectable) = &self.selectable else {
            return;
        };
        if !self.is_selected.load(Ordering::Relaxed) {
            return;
        }
        let due = match turn {
            Turn::Now(_) => Some(Duration::ZERO),
            Turn::After(wait) => Some((*wait).min(LOOK_OF_OTHERS)),
            Turn::Never => None,
        };
        // Best effort: it may be readable too often, or late by one packet.
        let _ = selectable.set(merge.empty(), due);
    }

    /// Waits until one of those devices may have a packet, or `longest` is over.
    pub(crate) fn wait_for_any(&self, devices: u64, longest: Option<Duration>) -> Result<(), End> {
        let blocking = !self.is_nonblocking();
        // A socket whose lane has a packet is readable all the time.
        let sockets = self.devices.iter().enumerate();
        let sockets =
            sockets.map(|(index, device)| ((devices >> index) & 1 == 1).then_some(device.socket));
        let wake = blocking.then_some(&self.wake);
        let bounds = [longest, limit(blocking, self.is_net_down())];
        let limit = bounds.into_iter().flatten().min();
        if let Some((found, signalled)) = self.woken(wait::wait_for_any(sockets, wake, limit))? {
            for (device, found) in self.devices.iter().zip(found) {
                device.check(found)?;
            }
            self.check_break(signalled)?;
        }
        let mut down = self.devices.iter().filter(|device| device.is_down());
        down.try_for_each(Device::look_after)
    }
}
