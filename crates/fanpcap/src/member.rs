//! A member of a direct group: its place, its counters, and what is known of the whole group.

use crate::mode::Mode;
use crate::page::{Page, Shelf};
use crate::record::{Counters, Record};
use fanpcap_linux::diag::{self, PacketSocket};
use fanpcap_linux::{packet, process};
use std::os::fd::BorrowedFd;

/// Where a member sits. It stays true when the process or thread moves to another network namespace.
#[derive(Clone, Debug)]
pub struct Place {
    group: u16,
    mode: Mode,
    ifindex: u32,
    /// The socket's.
    inode: u64,
    /// Where the members' pages are, if that could be told.
    shelf: Option<Shelf>,
}

/// What is known of a whole group; what is not, is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupStats {
    /// Sockets in the group, of all processes.
    pub members: Option<u64>,
    /// Sums over the members, when each of them has published its counters.
    pub counters: Option<Counters>,
    /// Age of the oldest counters in the sums, in nanoseconds.
    pub age_ns: u64,
}

impl Place {
    pub(crate) fn new(group: u16, mode: Mode, ifindex: u32, inode: u64) -> Self {
        let shelf = Shelf::of(ifindex, group).ok();
        Self {
            group,
            mode,
            ifindex,
            inode,
            shelf,
        }
    }

    /// The group's number.
    pub fn group(&self) -> u16 {
        self.group
    }

    /// The group's mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether two members are in the same group.
    pub fn is_beside(&self, other: &Self) -> bool {
        (self.group, self.ifindex) == (other.group, other.ifindex) && self.shelf == other.shelf
    }

    /// Another program in the group, by its page: name and process. Two different programs that share
    /// a stream are rarely meant to.
    pub fn stranger(&self) -> Option<(String, u32)> {
        let own = (process::executable(), std::process::id());
        let differs = |record: &Record| record.executable != own.0 && record.pid != own.1;
        let other = self.records().into_iter().find(differs)?;
        Some((other.program, other.pid))
    }

    /// What the kernel and the members' pages tell of the group.
    pub fn group_stats(&self) -> GroupStats {
        let members = self.members();
        let records = self.records();
        let complete = members == Some(records.len() as u64);
        let oldest = records.iter().map(|record| record.read_ns).min();
        let now = process::monotonic_ns();
        match oldest.filter(|&oldest| complete && oldest > 0) {
            None => GroupStats {
                members,
                ..GroupStats::default()
            },
            Some(oldest) => GroupStats {
                members,
                counters: Some(sum(&records)),
                age_ns: now.saturating_sub(oldest),
            },
        }
    }

    /// The sockets in the group; none if this one is not among those of the calling thread's network
    /// namespace.
    fn members(&self) -> Option<u64> {
        let sockets = diag::packet_sockets().ok()?;
        let is_own = |socket: &PacketSocket| u64::from(socket.inode) == self.inode;
        let is_member = |socket: &&PacketSocket| {
            let group = socket.fanout.filter(|group| group.id == self.group);
            socket.ifindex == self.ifindex && group.is_some()
        };
        let here = sockets.iter().any(is_own);
        here.then(|| sockets.iter().filter(is_member).count() as u64)
    }

    fn records(&self) -> Vec<Record> {
        self.shelf.as_ref().map(Shelf::records).unwrap_or_default()
    }
}

fn sum(records: &[Record]) -> Counters {
    Counters {
        received: records.iter().map(|record| record.counters.received).sum(),
        dropped: records.iter().map(|record| record.counters.dropped).sum(),
    }
}

/// A handle in a kernel fan-out group. It ends when the handle's socket is closed.
#[derive(Debug)]
pub struct Member {
    place: Place,
    /// What the system's library has counted; its counters are 32 bits wide and wrap.
    told: Counters,
    /// What was read from the socket past that library.
    taken: Counters,
    /// What the socket had counted when it joined.
    before: Counters,
    page: Option<Page>,
}

impl Member {
    /// A member at `place` whose library has counted `before`, which was not the group's.
    pub(crate) fn new(place: Place, before: Counters) -> Self {
        let create = |shelf| Page::create(shelf, place.mode, place.inode).ok();
        // Without a page the group's sums are unknown, and say so.
        let page = place.shelf.as_ref().and_then(create);
        Self {
            place,
            told: before,
            taken: Counters::default(),
            before,
            page,
        }
    }

    /// Where it sits.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Takes in the totals that the system's library tells and publishes. Returns the socket's totals,
    /// which begin with the handle, not with the group.
    pub fn handle_stats(&mut self, received: u32, dropped: u32) -> Counters {
        self.told.received = unwrapped(self.told.received, received);
        self.told.dropped = unwrapped(self.told.dropped, dropped);
        self.publish();
        Counters {
            received: self.told.received + self.taken.received,
            dropped: self.told.dropped + self.taken.dropped,
        }
    }

    /// Reads the socket's counters past the system's library, from any thread of the process, and
    /// publishes. The kernel clears them on read, so each packet is counted on one side only.
    pub fn refresh(&mut self, fd: BorrowedFd<'_>) {
        // Old counters must not look like new ones.
        if let Ok(statistics) = packet::take_statistics(fd) {
            self.taken.received += u64::from(statistics.packets);
            self.taken.dropped += u64::from(statistics.drops);
            self.publish();
        }
    }

    /// The member's counters as last read, since it joined.
    pub fn counters(&self) -> Counters {
        let since = |told: u64, taken: u64, before: u64| told + taken - before;
        let Self {
            told,
            taken,
            before,
            ..
        } = self;
        Counters {
            received: since(told.received, taken.received, before.received),
            dropped: since(told.dropped, taken.dropped, before.dropped),
        }
    }

    fn publish(&mut self) {
        let counters = self.counters();
        if let Some(page) = &mut self.page {
            page.publish(counters);
        }
    }
}

/// A 64-bit total after a 32-bit one, which it follows modulo 2^32, has moved on. One that another
/// thread has read before, and told later, has not.
fn unwrapped(total: u64, now: u32) -> u64 {
    let low = total & u64::from(u32::MAX);
    let step = (u64::from(now) + (1 << 32) - low) & u64::from(u32::MAX);
    if step < 1 << 31 { total + step } else { total }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_go_on_when_32_bits_wrap() {
        assert_eq!(unwrapped(0, 5), 5);
        assert_eq!(unwrapped(5, 5), 5);
        assert_eq!(unwrapped(u64::from(u32::MAX), 4), (1 << 32) + 4);
    }

    #[test]
    fn a_total_that_comes_late_takes_nothing_back() {
        assert_eq!(unwrapped(10, 9), 10);
        assert_eq!(unwrapped((7 << 32) + 10, 9), (7 << 32) + 10);
        assert_eq!(unwrapped(7 << 32, u32::MAX), 7 << 32);
    }

    #[test]
    fn what_was_counted_before_joining_is_not_the_groups() {
        let before = Counters {
            received: 50,
            dropped: 2,
        };
        let place = Place {
            group: 7,
            mode: Mode::parse("lb").unwrap(),
            ifindex: 1,
            inode: 1,
            shelf: None,
        };
        let mut member = Member::new(place, before);
        let totals = member.handle_stats(60, 2);
        assert_eq!((totals.received, totals.dropped), (60, 2));
        let own = member.counters();
        assert_eq!((own.received, own.dropped), (10, 0));
    }
}
