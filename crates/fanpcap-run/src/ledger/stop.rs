//! Takes the copies' members out of the group before the copies get the signal to end. The
//! applications can then take all packets from their rings.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use fanpcap_linux::bpf;

use super::Ledger;
use super::member::Member;

/// Packets that a copy has not taken from its rings yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) copy: usize,
    /// How many packets; `None` if unknown.
    pub(crate) packets: Option<u64>,
    /// The longest time until the kernel hands a packet to the application.
    pub(crate) timeout: Duration,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let copy = self.copy;
        match self.packets {
            Some(packets) => write!(f, "copy {copy} to take {packets} packets from its ring"),
            None => write!(f, "copy {copy} to take its last packets"),
        }
    }
}

impl Ledger {
    /// Stops the packets of all members of copies. If the group has no other members, packets that
    /// come from now on belong to nobody, and are no loss. In a steered group with other members,
    /// these get the packets. Under the kernel's own modes, members of such a group stay as they
    /// are: packets that they reject would be a loss of the group.
    pub(crate) fn stop(&mut self) {
        self.held.iter_mut().for_each(Member::read_page);
        if self.held.iter().any(Member::lacks_counters) {
            // A member on an engine is stopped by the counters of its group.
            self.count();
            self.read_offered();
        }
        let is_new = |it: &Member| !it.is_stopped() && it.has_joined();
        if !self.held.iter().any(is_new) {
            return;
        }
        let devices: BTreeSet<u32> = self.devices();
        let is_alone = |ifindex: &u32| {
            let in_group = self.ids_in_group(*ifindex);
            in_group.is_some_and(|ids| ids.is_subset(&self.known))
        };
        let alone: BTreeSet<u32> = devices.into_iter().filter(is_alone).collect();
        alone.iter().for_each(|ifindex| self.offered.stop(*ifindex));
        let (group, mut rejects) = (self.group, Vec::new());
        for member in self.held.iter_mut().filter(|it| is_new(it)) {
            match alone.contains(&member.ifindex) {
                true if member.reject() => rejects.push(member.id),
                true => {}
                false => member.drain(group),
            }
        }
        self.stopped.extend(alone);
        if rejects.is_empty() {
            return;
        }
        bpf::wait_for_programs();
        for member in self.held.iter().filter(|it| rejects.contains(&it.id)) {
            // If the counts can't be added, the number of unread packets seems too small, and the
            // copy gets its signal earlier.
            let _ = member.count_last(group);
        }
    }

    /// Stops members of copies that have joined after [`Ledger::stop`].
    pub(crate) fn stop_newcomers(&mut self) {
        if self.awaits_newcomers() {
            self.stop();
        }
    }

    /// Whether packets are stopped, and a copy is joining that has not been stopped.
    pub(crate) fn awaits_newcomers(&self) -> bool {
        !self.stopped.is_empty() && self.held.iter().any(|it| !it.is_stopped())
    }

    /// Whether [`Ledger::stop`] has stopped a member that still lives, or will stop one.
    pub(crate) fn has_stopped(&self) -> bool {
        self.held.iter().any(|it| it.is_stopped() || it.joins())
    }

    /// Whether a copy has a member that [`Ledger::stop`] could not stop, and that does not join.
    pub(crate) fn has_unstopped(&self) -> bool {
        let is_in = |it: &Member| it.has_joined() && !it.is_stopped();
        self.held.iter().any(|it| is_in(it) && !it.joins())
    }

    /// The copies that have not taken all packets of their stopped members, and those with a member
    /// that joins.
    pub(crate) fn left(&self) -> Vec<Left> {
        let stopped = self.held.iter().filter(|it| it.is_stopped() || it.joins());
        let left = stopped.map(|it| Left {
            copy: it.copy,
            packets: it.unread().filter(|_| it.is_stopped()),
            timeout: it.timeout,
        });
        left.filter(|it| it.packets != Some(0)).collect()
    }
}
