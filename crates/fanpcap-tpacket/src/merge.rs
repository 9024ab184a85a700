//! Several devices in one stream, in the order of time.
//!
//! A packet is delivered when every other device has a later one, or could no longer come with an
//! earlier one: when the time is over after which the kernel hands over what it has. So order costs a
//! delay, but a bounded one.

use crate::call::{Call, End, Packet};
use crate::filter::Program;
use crate::lane::{Device, Lane};
use crate::reader::Reader;
use crate::wait::limit;
use fanpcap_linux::wait;
use fanpcap_ring::Stamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How much later than it should the kernel may hand over a block: timers of old kernels tick every 4 ms.
const SLACK: Duration = Duration::from_millis(10);

/// How far ahead of the system's clock a stamp of that clock can be.
const AHEAD: Duration = Duration::from_secs(1);

/// The lanes of several devices.
#[derive(Debug)]
pub(crate) struct Merge {
    lanes: Vec<Lane>,
    /// After this time no device comes with an earlier packet.
    delay: Duration,
    /// What is older than this, since 1970, may be delivered.
    horizon: Duration,
}

impl Merge {
    /// Merges lanes of which the kernel hands over each packet within `timeout`.
    pub(crate) fn new(lanes: Vec<Lane>, timeout: Option<Duration>) -> Self {
        Self {
            lanes,
            delay: timeout.unwrap_or_default() + SLACK,
            horizon: Duration::ZERO,
        }
    }

    pub(crate) fn set_filter(&mut self, program: &Program, in_kernel: bool) {
        for lane in &mut self.lanes {
            lane.set_filter(program.clone(), in_kernel);
        }
    }

    /// The lane with the earliest packet, its time, and whether all have one.
    fn earliest(&self) -> (Option<(usize, Duration)>, bool) {
        let heads = || self.lanes.iter().map(|lane| lane.head.as_ref());
        let times = heads().enumerate();
        let times = times.filter_map(|(lane, head)| Some((lane, since_1970(head?.stamp))));
        let earliest = times.min_by_key(|(_, time)| *time);
        (earliest, heads().all(|head| head.is_some()))
    }

    /// Lets everything that there is be delivered.
    fn hurry(&mut self) {
        self.horizon = Duration::MAX;
    }

    /// How long a packet of this time must still wait for earlier ones; none when no longer.
    fn wait(&mut self, time: Duration) -> Option<Duration> {
        if time <= self.horizon {
            return None;
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        if time > now + AHEAD {
            // The stamps are of another clock: there is nothing to wait for.
            return None;
        }
        self.horizon = now.saturating_sub(self.delay);
        Some(time.saturating_sub(self.horizon)).filter(|wait| !wait.is_zero())
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
    ) -> Result<Packet, End> {
        loop {
            self.check_end(call)?;
            for lane in &mut merge.lanes {
                lane.fill(&self.wanted)?;
            }
            let (earliest, all) = merge.earliest();
            let wait = earliest.and_then(|(_, time)| if all { None } else { merge.wait(time) });
            if let (Some((lane, _)), None) = (earliest, wait) {
                call.begun = true;
                let head = merge.lanes[lane].head.take();
                return head.ok_or(End::Delivered(call.delivered));
            }
            if call.delivered > 0 || (call.begun && self.is_nonblocking()) {
                return Err(End::Delivered(call.delivered));
            }
            match (self.wait_for_several(merge, wait), earliest) {
                // A device that goes takes no other's packets with it; it is gone at the next call too.
                (Err(End::Failed(_)), Some(_)) => merge.hurry(),
                (waited, _) => waited?,
            }
            call.begun = true;
        }
    }

    /// Waits until a lane without a packet may have one, or `limit` is over.
    #[cold]
    fn wait_for_several(&self, merge: &Merge, longest: Option<Duration>) -> Result<(), End> {
        let blocking = !self.is_nonblocking();
        // A socket whose lane has a packet is readable all the time.
        let sockets = self.devices.iter().zip(&merge.lanes);
        let sockets = sockets.map(|(device, lane)| lane.head.is_none().then_some(device.socket));
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
