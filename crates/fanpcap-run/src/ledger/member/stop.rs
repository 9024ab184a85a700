//! Stops the packets of a living member, so that its application can take all packets from its ring
//! before it gets the signal to end.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use fanpcap_group::last_counts;
use fanpcap_group::page::GroupDir;
use fanpcap_group::weight;
use fanpcap_linux::packet::Filter;
use fanpcap_linux::packet::ring;

use super::Member;

/// How a member's packets were stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The member rejects its packets.
    Rejects,
    /// Other members of the group get its packets.
    Drained,
}

impl Member {
    /// Stops the member's packets, which then belong to no member. Returns whether this was
    /// possible. Packets in flight may still come into the ring.
    pub(in crate::ledger) fn reject(&mut self) -> bool {
        // The member may have joined since the page was read.
        self.read_page();
        let can_stop = match (&self.socket, &self.counters) {
            (_, Some(counters)) => {
                counters.stop(self.id);
                true
            }
            (Some(_), None) if self.record.is_on_engine() => false,
            (Some(socket), None) => Filter::reject_all().attach(socket.as_fd()).is_ok(),
            (None, None) => false,
        };
        self.timeout = self.timeout_of_ring();
        self.stopped = can_stop.then_some(Stopped::Rejects);
        can_stop
    }

    /// Gives the member's packets to other members of its group, if the group is steered.
    pub(in crate::ledger) fn drain(&mut self, group: u16) {
        let is_drained = self.is_steered() && weight::drain(self.ifindex, group, self.id).is_ok();
        self.timeout = self.timeout_of_ring();
        self.stopped = is_drained.then_some(Stopped::Drained);
    }

    /// Adds the kernel's counts of a member that rejects to its page. No packet may be in flight.
    ///
    /// # Errors
    /// As [`last_counts::add`].
    pub(in crate::ledger) fn count_last(&self, group: u16) -> io::Result<()> {
        match &self.socket {
            Some(socket) if !self.record.is_on_engine() => {
                let group_dir = GroupDir::of(self.ifindex, group)?;
                last_counts::add(&group_dir, (self.record.pid, self.id), socket.as_fd())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether [`Member::reject`] or [`Member::drain`] has stopped the member's packets.
    pub(in crate::ledger) fn is_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// Whether the member is joining its group, so that it can't be stopped yet. On an engine, this
    /// process needs the counters of the group to stop it.
    pub(in crate::ledger) fn joins(&self) -> bool {
        !self.is_stopped() && (!self.has_joined() || self.lacks_counters())
    }

    /// Packets in the ring of a stopped member; `None` if unknown.
    pub(in crate::ledger) fn unread(&self) -> Option<u64> {
        let record = self.page.record()?;
        let counted = self.counters.as_ref().and_then(|it| it.counted(self.id));
        let on_page = record.counters;
        let [received, dropped] = counted.unwrap_or([on_page.received, on_page.dropped]);
        let given = received.saturating_sub(dropped);
        Some(given.saturating_sub(record.taken?))
    }

    /// The longest time until the kernel hands a packet in the ring to the application. Zero if
    /// unknown, or if an engine hands over all packets at once.
    fn timeout_of_ring(&self) -> Duration {
        let socket = self.socket.as_ref();
        let socket = socket.filter(|_| !self.record.is_on_engine());
        let ring = socket.and_then(|socket| ring::of(socket.as_fd()).ok());
        let (_, geometry) = ring.unzip();
        geometry.map_or(Duration::ZERO, |it| Duration::from_millis(it.retire.into()))
    }

    /// Packets of the group that the member has refused while it was closed. Packets that come
    /// after [`Member::reject`] belong to no member, so the group does not lose them.
    pub(super) fn refused_by_group(&self, refused: Option<u64>) -> Option<u64> {
        match self.stopped {
            Some(Stopped::Rejects) => Some(0),
            Some(Stopped::Drained) | None => refused,
        }
    }
}
