//! Settles ended members of steered groups. The living members of the group read an ended member's
//! ring to the end, and write the final counters on its page.
//!
//! Until the takeover is complete, the ledger holds the socket of the ended member: if the group
//! has no other member, only the ledger can count the packets in that member's ring. But the kernel
//! frees a socket only with its last descriptor, and a group that needs the member's slot waits
//! until the socket is freed. So the ledger releases the socket as soon as the takeover is
//! complete.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fanpcap_group::roster::{self, Roster};
use fanpcap_group::takeover_status;
use fanpcap_linux::netlink::link;
use fanpcap_linux::wait::clock;

use super::device_names::is_gone;
use super::leave::Moment;
use super::member::Member;
use super::{Account, Ledger};

/// Interval of checks for takeovers.
const PERIOD: Duration = Duration::from_millis(5);

/// If the ledger has found no living member for this time, it assumes that the group has none. A
/// newcomer that got the group's table from the last member needs less time to note on its own page
/// that it has the table, and then counts as a living member.
const NONE_FOR: Duration = Duration::from_millis(10);

/// Time within which the ledger detects that a process has died, in nanoseconds.
const LONG_AGO_NS: u64 = 1_000_000_000;

/// Whether the groups of ended members have living members.
#[derive(Debug, Default)]
pub(super) struct Takers {
    looked: Option<Instant>,
    /// Devices where the group has no living member, each with the time since when it has none.
    none: BTreeMap<u32, Instant>,
    /// The devices' counts when the group last had a living member.
    counted: BTreeMap<u32, u64>,
    /// Devices where the group may have placeholders: sockets whose rings were taken over.
    placeholders: BTreeSet<u32>,
}

impl Takers {
    /// Checks again whether the groups of `ended` have living members. Returns false without a
    /// check if `ended` is empty or if the last check is too recent.
    fn look(&mut self, group: u16, ended: &[Member]) -> bool {
        if ended.is_empty() {
            self.none.clear();
            self.counted.clear();
            return false;
        }
        if self.looked.is_some_and(|looked| looked.elapsed() < PERIOD) {
            return false;
        }
        self.looked = Some(Instant::now());
        for ifindex in ended.iter().map(|it| it.ifindex) {
            let counted = link::packets(ifindex).ok();
            if takeover_status::may_be_taken_over(ifindex, group) {
                self.none.remove(&ifindex);
                self.counted.extend(counted.map(|it| (ifindex, it)));
            } else {
                self.none.entry(ifindex).or_insert_with(Instant::now);
            }
        }
        true
    }

    fn are_none(&self, ifindex: u32) -> bool {
        let since = self.none.get(&ifindex);
        since.is_some_and(|since| since.elapsed() >= NONE_FOR)
    }
}

impl Ledger {
    /// Settles the ended members whose takeover is complete. Returns members that no other member
    /// takes over, and members that were never in the group.
    pub(super) fn settle_inherited(&mut self) -> Vec<Member> {
        let ended = std::mem::take(&mut self.ended);
        let rest = self.without_inherited(ended);
        if !self.takers.look(self.group, &rest) {
            self.ended = rest;
            return Vec::new();
        }
        let (roster, group) = (Roster::look().ok(), self.group);
        let has_takers = |member: &Member| {
            let in_group = || {
                roster.as_ref().is_none_or(|roster| {
                    let mut ids = roster.ids(member.ifindex, group);
                    ids.any(|id| id == member.id)
                })
            };
            // A founder takes a member out of the group before it writes the final counters.
            let is_founded = || member.has_joined() && self.has_other_founder(member.ifindex);
            !self.takers.are_none(member.ifindex) && (in_group() || is_founded())
        };
        let (waiting, alone) = rest.into_iter().partition(has_takers);
        self.ended = waiting;
        // A member whose takeover became complete after the first check may have left the group.
        self.without_inherited(alone)
    }

    /// Settles those of the members whose takeover is complete, and returns the others.
    fn without_inherited(&mut self, members: Vec<Member>) -> Vec<Member> {
        let (mut rest, mut left) = (Vec::new(), BTreeSet::new());
        for mut member in members {
            let Some(account) = member.inherited() else {
                rest.push(member);
                continue;
            };
            let account = self.with_lost_reading(account, &member);
            self.settled.push((member.copy, account));
            if rejects_silently(&member) {
                self.takers.placeholders.insert(member.ifindex);
            }
            if member.has_joined() && is_gone(member.ifindex) {
                left.insert(member.ifindex);
            }
            // If the member joined and died since the last scan, its join has ended an absence.
            self.end_absences(&[member]);
        }
        self.note_gone(&left, &rest);
        rest
    }

    /// Begins the absences on those of the `devices`, which are gone, where no member is left. The
    /// members that left them have final counters, as on XDP the last member writes its own. `rest`
    /// are further members.
    fn note_gone(&mut self, devices: &BTreeSet<u32>, rest: &[Member]) {
        for &ifindex in devices {
            let mut members = self.held.iter().chain(&self.ended).chain(rest);
            if !members.any(|member| member.ifindex == ifindex) {
                self.absences.begin(ifindex, Some(0));
            }
        }
    }

    /// Whether another process has founded the group on a device.
    fn has_other_founder(&self, ifindex: u32) -> bool {
        let founder = roster::founder(ifindex, self.group);
        founder.is_some_and(|founder| founder.pid != std::process::id())
    }

    /// When members leave, notes the packets that may be uncounted. A socket whose ring was taken
    /// over (a placeholder, or the socket of a member in `ended`) rejects packets without counting
    /// them. Placeholders get packets after the last living member died: the kernel then closes the
    /// placeholders one by one, and moves sockets to other positions. The bound is the number of
    /// all packets since the group last had a living member.
    pub(super) fn note_uncounted(&mut self, moment: &Moment, ended: &[Member]) {
        let ifindex = moment.ifindex;
        // No packet comes to a group that is stopped, or whose device is gone.
        if self.stopped.contains(&ifindex) || is_gone(ifindex) {
            return;
        }
        let of_device = || ended.iter().filter(|member| member.ifindex == ifindex);
        let has_placeholders =
            self.takers.are_none(ifindex) && self.takers.placeholders.remove(&ifindex);
        let Some(one) = of_device().next() else {
            return;
        };
        if !has_placeholders && !of_device().any(rejects_silently) {
            return;
        }
        let long_ago_ns = clock::monotonic_ns().saturating_sub(LONG_AGO_NS);
        let before = self.takers.counted.get(&ifindex).copied();
        let before = before.or_else(|| self.counts.before(ifindex, long_ago_ns));
        let since = moment.counted().zip(before);
        let account = Account::uncounted(since.map(|(now, before)| now.saturating_sub(before)));
        self.settled.push((one.copy, account));
    }
}

/// Whether the member's socket rejects packets without counting them, because another member took
/// over its ring. On XDP the engine counts the packets that reach no member.
fn rejects_silently(member: &Member) -> bool {
    member.has_taker() && !member.record.is_on_engine()
}
