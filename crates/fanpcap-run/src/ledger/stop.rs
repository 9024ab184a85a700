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
        let is_new = |it: &&mut Member| !it.is_stopped() && it.has_joined();
        let devices: BTreeSet<u32> = self.devices();
        let is_alone = |ifindex: &u32| {
            let in_group = self.ids_in_group(*ifindex);
            in_group.is_some_and(|ids| ids.is_subset(&self.known))
        };
        let alone: BTreeSet<u32> = devices.into_iter().filter(is_alone).collect();
        alone.iter().for_each(|ifindex| self.offered.stop(*ifindex));
        let (group, mut rejects) = (self.group, Vec::new());
        for member in self.held.iter_mut().filter(is_new) {
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

    /// Whether [`Ledger::stop`] has stopped a member that still lives.
    pub(crate) fn has_stopped(&self) -> bool {
        self.held.iter().any(Member::is_stopped)
    }

    /// The copies that have not taken all packets of their stopped members.
    pub(crate) fn left(&self) -> Vec<Left> {
        let stopped = self.held.iter().filter(|it| it.is_stopped());
        let left = stopped.map(|it| Left {
            copy: it.copy,
            packets: it.unread(),
            timeout: it.timeout,
        });
        left.filter(|it| it.packets != Some(0)).collect()
    }
}
