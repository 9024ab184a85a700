//! The counters of the copies' groups on XDP. The ledger holds the BPF maps with these counters, as
//! it holds the members' sockets. Otherwise the kernel would free the maps with the group's last
//! member, and that member's last counters would be lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_group::group_counters::GroupCounters;
use fanpcap_linux::netlink::link;

use super::member::Member;
use super::{Account, Ledger};

/// Limit and interval of the wait until the kernel has detached a group's BPF program from its
/// device.
const STILL_WITHIN: Duration = Duration::from_millis(200);
const PERIOD: Duration = Duration::from_millis(2);

/// The last reading of the group's counters on each device.
#[derive(Debug, Default)]
pub(super) struct GroupReadings(BTreeMap<u32, Reading>);

#[derive(Debug)]
struct Reading {
    counters: Arc<GroupCounters>,
    /// The device's count of packets, in both directions.
    counted: u64,
    /// The group's count of packets when `counted` was read, or a moment later.
    offered: u64,
    /// The group's count of packets without a member, when this command stopped the members.
    no_member: Option<u64>,
    /// How many packets without a member are in the bound already. A group that this command has
    /// founded goes on after its last member.
    told: u64,
}

impl GroupReadings {
    /// Notes that the group's members on a device are about to be stopped: from now on, packets
    /// without a member are no loss.
    pub(super) fn stop(&mut self, ifindex: u32) {
        if let Some(reading) = self.0.get_mut(&ifindex) {
            let no_member = reading.counters.no_member();
            reading.no_member.get_or_insert(no_member);
        }
    }
}

impl Reading {
    /// Packets that the device counted after `since` but that did not reach the group. `since` is
    /// the device's count when the group's first member was about to join.
    fn unoffered(&self, ifindex: u32, since: u64) -> Option<u64> {
        // Read the group's counter first: a packet between the reads then counts as not offered.
        let offered = self.counters.offered();
        let counted = link::packets(ifindex).ok()?.saturating_sub(since);
        Some(counted.saturating_sub(offered))
    }

    /// Packets of a group without members that no member counted, up to the device's count `until`.
    /// Some of these packets came while the group had no member with a share. The others came after
    /// the group's end: they are no loss if the end `is_intended`.
    fn uncounted(&mut self, until: u64, is_intended: bool) -> u64 {
        let offered = self.counters.offered().saturating_sub(self.offered);
        let since = until.saturating_sub(self.counted).saturating_sub(offered);
        let missed = if is_intended { 0 } else { since };
        let no_member = self.no_member;
        let no_member = no_member.unwrap_or_else(|| self.counters.no_member());
        let before = std::mem::replace(&mut self.told, no_member);
        missed.saturating_add(no_member.saturating_sub(before))
    }
}

impl Ledger {
    /// Holds the counters of members that have joined a group on XDP, and reads the counters of all
    /// groups. The devices' counts must have just been read.
    pub(super) fn read_offered(&mut self) {
        for member in self.held.iter_mut().filter(|it| it.lacks_counters()) {
            let ifindex = member.ifindex;
            let known = self.offered.0.get(&ifindex);
            if known.is_some_and(|reading| member.hold_counters(&reading.counters)) {
                continue;
            }
            let (record, id) = (&member.record, member.id);
            // This fails if a newcomer has no slot yet, or if this process lacks the right to trace
            // the member's process. The bound of uncounted packets then includes the packets that
            // reach the group until the counters are held.
            let Ok(counters) = GroupCounters::of_member(ifindex, self.group, record, id) else {
                continue;
            };
            let counters = Arc::new(counters);
            if !member.hold_counters(&counters) {
                continue;
            }
            self.nowhere.of_engine(&counters, &self.known);
            // The group is new, or was created again since the last reading.
            let reading = Reading {
                counters,
                counted: u64::MAX,
                offered: 0,
                no_member: None,
                told: 0,
            };
            let joined = member.rejecting().joined_at;
            let resumed = self.resumed.remove(&ifindex).or(joined);
            let head = resumed.and_then(|resumed| reading.unoffered(ifindex, resumed));
            let before = self.offered.0.insert(ifindex, reading).zip(joined);
            let is_intended = self.absences.is_over;
            let missed = before.map_or(0, |(mut before, joined)| {
                before.uncounted(joined, is_intended)
            });
            let account = Account::uncounted(head.map(|head| head.saturating_add(missed)));
            self.settled.push((member.copy, account));
        }
        for (ifindex, counted) in self.counts.last(None) {
            if let Some(reading) = self.offered.0.get_mut(&ifindex) {
                reading.counted = counted;
                reading.offered = reading.counters.offered();
            }
        }
    }

    /// Gives ended members the counters of their group, if the ledger holds these counters. This is
    /// needed for a member that ended before the first scan after its join.
    pub(super) fn hold_known(&self, ended: &mut [Member]) {
        for member in ended.iter_mut().filter(|it| it.lacks_counters()) {
            if let Some(reading) = self.offered.0.get(&member.ifindex) {
                member.hold_counters(&reading.counters);
            }
        }
    }

    /// Waits until the counters no longer change in groups where no copy has a member: the kernel
    /// detaches a group's BPF program from the device some time after the last member's end.
    pub(super) fn await_still(&self, ended: &[Member]) {
        for (ifindex, reading) in &self.offered.0 {
            let is_there = |member: &Member| member.ifindex == *ifindex;
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

    /// The number of packets that no member of an ended group counted. They came before the group
    /// was empty (`counted` is the device's packet counter at that time), or, if a newcomer has
    /// created the group again, before that newcomer's join. The result is 0 if the group has
    /// members, if it is not on XDP, or if its counters were not held.
    pub(super) fn missed_at_the_end(
        &mut self,
        ifindex: u32,
        (is_deserted, counted): (bool, Option<u64>),
    ) -> u64 {
        if !self.has_ended(ifindex) {
            return 0;
        }
        let held = self.held.iter().filter(|it| it.ifindex == ifindex);
        let joined = held.filter_map(|it| it.rejecting().joined_at).min();
        let until = joined.filter(|_| !is_deserted).or(counted);
        let is_intended = self.absences.is_over;
        let uncounted =
            |reading: &mut Reading| until.map_or(0, |until| reading.uncounted(until, is_intended));
        let founder = self.founder.as_ref();
        if founder.is_some_and(|it| it.ifindex() == ifindex && !it.is_replaced()) {
            // The group goes on, with the same counters.
            return self.offered.0.get_mut(&ifindex).map_or(0, uncounted);
        }
        let reading = self.offered.0.remove(&ifindex);
        reading.map_or(0, |mut reading| uncounted(&mut reading))
    }

    /// Whether the group of the last reading on a device has no member any more. False if no group
    /// on this device was read.
    fn has_ended(&self, ifindex: u32) -> bool {
        let Some(reading) = self.offered.0.get(&ifindex) else {
            return false;
        };
        let is_its = |member: &Member| {
            member.ifindex == ifindex && reading.counters.counted(member.id).is_some()
        };
        let in_group = self.ids_in_group(ifindex);
        let has_foreign = in_group.is_none_or(|in_group| !in_group.is_subset(&self.known));
        !has_foreign && !self.held.iter().any(is_its)
    }
}
