//! The departure of a member from its steered group, and the members that are gone.

use super::Membership;
use crate::group_stats::Departed;
use crate::kernel::Kernel;
use crate::member_descriptors::MemberDescriptors;
use crate::page::MemberId;
use crate::record::MemberCounters;
use crate::slots::KernelOps;
use crate::table::State;
use fanpcap_linux::unix::ClosedLater;
use std::os::fd::AsFd;

impl Membership {
    /// The members of the group that are gone.
    pub fn departed(&self) -> Departed {
        let table = self.shared.table();
        let mut departed = Departed::default();
        let gone = table.gone();
        let mut is_known = gone.unknown == 0;
        for (_, row) in table.rows() {
            let is_member = matches!(row.state, State::Live | State::Newcomer | State::Free);
            if !is_member {
                departed.sockets.push(MemberId::of_socket(row.member));
                // The sums have the counters of a member that is gone only after its slot has
                // become a placeholder.
                is_known &= row.state == State::Vacant;
            }
        }
        departed.counters = is_known.then_some(MemberCounters {
            received: gone.received,
            dropped: gone.dropped,
        });
        departed
    }

    /// Gives the member's buckets to other members at once, because its handle is about to be
    /// closed. If another member holds the lock, the other members move the buckets when they
    /// notice that this member is gone.
    pub(crate) fn depart(&self) {
        if self.pid != std::process::id() {
            return;
        }
        if let Ok(Some(_guard)) = self.lock.try_take() {
            let mut kernel = Kernel::of(&self.shared);
            // Best effort: if this fails, the other members move the buckets later.
            let _ = self.slots(&mut kernel).depart(self.cookie);
            self.count_alone();
        }
    }

    /// If an engine has counted this departing member's packets and no other member is left, writes
    /// the member's final counters to its page: the engine's counters end with the group. First
    /// stops the packets for the member's slot, and waits until the counters don't change any more.
    /// Does not wait if the library has chosen the group's number: nobody adds up the counts of
    /// such a group, and packets that come during the close may be missing from them. A thread of
    /// the kernel then releases what takes long. Does nothing if a successor is awaited.
    fn count_alone(&self) {
        let Some(on_device) = &self.shared.on_device else {
            return;
        };
        let table = self.shared.table();
        let slot = table.slot_of(self.cookie);
        let slot = slot.filter(|_| !table.rows().any(|(_, row)| row.is_occupied()));
        let descriptors = MemberDescriptors::of(&self.shared, self.cookie);
        if let Some((slot, descriptors)) = slot.zip(descriptors) {
            on_device.stop(slot.0);
            if !self.is_unnumbered {
                let _ = Kernel::of(&self.shared).settle();
            }
            // Best effort: without this, the close waits until the kernel has released them.
            let slow = on_device.slow_to_close().into_iter();
            let slow: Vec<_> = slow.chain([descriptors.socket.as_fd()]).collect();
            if let Ok(later) = ClosedLater::new(&slow) {
                let _ = self.later.set(later);
            }
            let _ = descriptors.final_counters(&self.shared);
        }
    }
}
