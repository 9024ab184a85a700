//! A handle's membership in a group of a poller.

use fanpcap::handle::Joined;
use fanpcap_engine::PolledIo;
use fanpcap_reader::{PublishedCounters, Reader};
use std::sync::Arc;

/// A handle's membership in a group of a poller.
pub(crate) struct Polled {
    pub(crate) io: Arc<dyn PolledIo>,
    /// The group. If the handle has a group of its own, the number is 0.
    pub(crate) joined: Joined,
    /// The counters that the reader publishes.
    kept: PublishedCounters,
}

impl Polled {
    pub(crate) fn new(io: Arc<dyn PolledIo>, joined: Joined) -> Self {
        let kept = counters(&*io);
        Self { io, joined, kept }
    }

    /// Makes the reader run the member's tasks for its group, on this device of the handle. A
    /// reader that never waits looks for tasks when it publishes counters, so it publishes some.
    pub(crate) fn attend_by(&self, reader: &Reader, device: usize) {
        reader.keep(device, self.kept.clone());
        reader.control().attend_to(device, self.io.tasks());
    }
}

/// The counters that the reader publishes. The poller's watchers see three of them, in the member's
/// pool. The others are in this process's own memory.
fn counters(io: &dyn PolledIo) -> PublishedCounters {
    let mut counters = PublishedCounters::own();
    // If the figures can't be mapped, watchers see a member that has taken nothing.
    if let Ok([taken, rejected, looked_ns]) = io.figures() {
        counters.position.taken = taken;
        counters.rejected = Some(rejected);
        counters.looked_ns = looked_ns;
    }
    counters
}
