//! The counters of the copies' groups on XDP. The ledger holds them, as it holds the members'
//! sockets: the kernel frees them with the group's last member, whose last counters nobody else can
//! tell.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_group::group_counters::GroupCounters;
use fanpcap_linux::netlink::link;

use super::member::Member;
use super::{Account, Ledger};

/// How long the kernel may take to take a group's BPF program from its device, and how often to
/// look.
const STILL_WITHIN: Duration = Duration::from_millis(200);
const PERIOD: Duration = Duration::from_millis(2);

/// What was read last of the group on each device.
#[derive(Debug, Default)]
pub(super) struct Offered(BTreeMap<u32, Reading>);

#[derive(Debug)]
struct Reading {
    counters: Arc<GroupCounters>,
    /// Packets on the device, in both directions.
    counted: u64,
    /// Packets that had come to the group, not fewer than by then.
    offered: u64,
}

impl Reading {
    /// Packets that have come to the device since it had counted so much, when the group's first
    /// member was about to join, and that have not come to the group.
    fn unoffered(&self, ifindex: u32, since: u64) -> Option<u64> {
        // Asked first: what comes in between is counted, and not offered.
        let offered = self.counters.offered();
        let counted = link::packets(ifindex).ok()?.saturating_sub(since);
        Some(counted.saturating_sub(offered))
    }

    /// The group has ended. Packets that came to the device until it had counted so much, and that
    /// no member has counted: for some the group had no member with a share. Others came when the
    /// group had ended, which is no loss if that `is_meant`.
    fn uncounted(&self, until: u64, is_meant: bool) -> u64 {
        let offered = self.counters.offered().saturating_sub(self.offered);
        let since = until.saturating_sub(self.counted).saturating_sub(offered);
        let missed = if is_meant { 0 } else { since };
        missed.saturating_add(self.counters.no_member())
    }
}

impl Ledger {
    /// Holds the counters of members that have joined a group on XDP, and reads those of all
    /// groups. The devices' counts have just been read.
    pub(super) fn read_offered(&mut self) {
        for member in self.held.iter_mut().filter(|it| it.lacks_counters()) {
            let ifindex = member.ifindex();
            let known = self.offered.0.get(&ifindex);
            if known.is_some_and(|reading| member.hold_counters(&reading.counters)) {
                continue;
            }
            let (record, id) = (member.record(), member.id());
            // A newcomer may not be in its slot yet, and a process that can't be traced shows
            // nothing: the bound has what comes to its group unseen.
            let Ok(counters) = GroupCounters::of_member(ifindex, self.group, record, id) else {
                continue;
            };
            let counters = Arc::new(counters);
            if !member.hold_counters(&counters) {
                continue;
            }
            // The group has begun anew.
            let reading = Reading {
                counters,
                counted: u64::MAX,
                offered: 0,
            };
            let joined = member.rejecting().joined_at;
            let resumed = self.resumed.remove(&ifindex).or(joined);
            let head = resumed.and_then(|resumed| reading.unoffered(ifindex, resumed));
            let before = self.offered.0.insert(ifindex, reading).zip(joined);
            let is_meant = self.absences.are_meant();
            let missed = before.map_or(0, |(before, joined)| before.uncounted(joined, is_meant));
            let account = Account {
                uncounted_at_most: head.map(|head| head.saturating_add(missed)),
                ..Account::ZERO
            };
            self.settled.push((member.copy(), account));
        }
        for (ifindex, counted) in self.counts.last(None) {
            if let Some(reading) = self.offered.0.get_mut(&ifindex) {
                reading.counted = counted;
                reading.offered = reading.counters.offered();
            }
        }
    }

    /// Holds the counters of members that ended before they were read, where these are known.
    pub(super) fn hold_known(&self, ended: &mut [Member]) {
        for member in ended.iter_mut().filter(|it| it.lacks_counters()) {
            if let Some(reading) = self.offered.0.get(&member.ifindex()) {
                member.hold_counters(&reading.counters);
            }
        }
    }

    /// Waits until the engine counts no more for groups that have lost all members of copies: the
    /// kernel takes a group's BPF program from the device some time after its last member has
    /// ended.
    pub(super) fn await_still(&self, ended: &[Member]) {
        for (ifindex, reading) in &self.offered.0 {
            let is_there = |member: &Member| member.ifindex() == *ifindex;
            if self.held.iter().any(is_there) || !ended.iter().any(is_there) {
                continue;
            }
            let end = Instant::now() + STILL_WITHIN;
            let (mut last, mut same) = (reading.counters.offered(), 0);
            while same < 2 && Instant::now() < end {
                thread::sleep(PERIOD);
                let now = reading.counters.offered();
                same = if now == last { same + 1 } else { 0 };
                last = now;
            }
        }
    }

    /// Members have left the group on a device, which is empty since the device counted so much,
    /// or which newcomers have begun anew. Packets that came until then, or until the first
    /// newcomer, and that no member has counted; 0 where the group goes on, is none on XDP, or
    /// where its counters were not held.
    pub(super) fn missed_at_the_end(
        &mut self,
        ifindex: u32,
        (is_deserted, counted): (bool, Option<u64>),
    ) -> u64 {
        if !self.has_ended(ifindex) {
            return 0;
        }
        let held = self.held.iter().filter(|it| it.ifindex() == ifindex);
        let joined = held.filter_map(|it| it.rejecting().joined_at).min();
        let until = joined.filter(|_| !is_deserted).or(counted);
        let reading = self.offered.0.remove(&ifindex);
        let is_meant = self.absences.are_meant();
        let ended = reading.zip(until);
        ended.map_or(0, |(reading, until)| reading.uncounted(until, is_meant))
    }

    /// Whether no member is left of the group whose counters were read last.
    fn has_ended(&self, ifindex: u32) -> bool {
        let Some(reading) = self.offered.0.get(&ifindex) else {
            return false;
        };
        let is_its = |member: &Member| {
            member.ifindex() == ifindex && reading.counters.counted(member.id()).is_some()
        };
        let in_group = self.ids_in_group(ifindex);
        let has_foreign = in_group.is_none_or(|in_group| !in_group.is_subset(&self.known));
        !has_foreign && !self.held.iter().any(is_its)
    }
}
