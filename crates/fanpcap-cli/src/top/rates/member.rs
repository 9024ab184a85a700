//! A member's rates, and its share of the group's packets.

use std::collections::BTreeMap;

use fanpcap_snapshot::{Counts, Snapshot, Socket, percent, rounded};

use super::rate;
use crate::top::view::Member;

/// A member that takes packets reads its counters again after this many nanoseconds.
const REFRESH_NS: u64 = 100_000_000;

/// An application that has never looked for packets counts as not reading after this many seconds.
const UNREAD_SECONDS: f64 = 5.0;

/// Identifies a socket, and distinguishes it from a later socket with the same inode number.
type Key = (u32, Option<u16>, u32, Option<u32>);

/// The rate in packets per second from which a member's share of its group's packets is computed;
/// `None` if unknown.
pub(super) type Share = Option<f64>;

/// Received and dropped packets per second, and the rate from which the member's share is computed.
#[derive(Clone, Copy, Debug, Default)]
struct Speeds {
    received: Option<f64>,
    dropped: Option<f64>,
    share: Share,
    /// Seconds between the two readings of the counters from which the rates are computed.
    window: Option<f64>,
    /// The window differs much from the interval between the snapshots.
    is_rough: bool,
}

/// State of the members from earlier intervals.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Times of the two snapshots in nanoseconds; equal after the first snapshot.
    looks: (u64, u64),
    counts: BTreeMap<Key, Counts>,
    /// The last known rates of each member.
    speeds: BTreeMap<Key, Speeds>,
}

impl History {
    /// Starts the next interval.
    pub(super) fn begin(&mut self, before: Option<&Snapshot>, after: &Snapshot) {
        let first = before.map_or(after.at_ns, |before| before.at_ns);
        self.looks = (first, after.at_ns);
        self.counts = before
            .into_iter()
            .flat_map(|before| &before.sockets)
            .filter_map(|socket| Some((key(socket), socket.counts?)))
            .collect();
        let counts = &self.counts;
        self.speeds.retain(|key, _| counts.contains_key(key));
    }

    /// A member's numbers in this interval, and the rate from which its share is computed.
    pub(super) fn member(&mut self, socket: &Socket) -> (Member, Share) {
        let at_ns = self.looks.1;
        let counts = socket.counts;
        let stale = socket.has_page && counts.is_none_or(|counts| counts.is_stale(at_ns));
        let speeds = counts.filter(|_| !stale);
        let speeds = speeds.map_or_else(Speeds::default, |counts| self.speeds(key(socket), counts));
        let process = socket.process.as_ref();
        let library = process.and_then(|process| process.library.as_ref());
        let member = Member {
            socket: socket.inode,
            pid: process.and_then(|process| process.pid),
            program: process.map(|process| process.program.clone()),
            waits_for_device: socket.waits_for_device,
            ours: socket.has_page,
            cpu_affinity: process.and_then(|process| process.affinity.clone()),
            last_cpu: process.and_then(|process| process.last_cpu),
            protocol: socket.protocol,
            ring_bytes: socket.ring_bytes,
            slot: socket.place.map(|place| place.slot),
            buckets: socket.place.map(|place| place.buckets),
            buckets_percent: socket.place.map(|place| percent(place.buckets)),
            weight: socket.place.map(|place| place.weight),
            class: socket.class,
            counters_age_seconds: counts.map(|counts| rounded(counts.age(at_ns))),
            unread_seconds: socket.unread_seconds.map(rounded),
            is_unread: socket.is_never_read
                && socket.unread_seconds >= Some(UNREAD_SECONDS)
                && socket.place.is_none_or(|place| place.buckets > 0),
            stale,
            is_stopped: process.is_some_and(|process| process.is_stopped),
            library_version: library.map(|it| it.version.clone()),
            library_is_replaced: library.map(|it| it.is_replaced),
            received_packets_total: counts.map(|counts| counts.received),
            packets_per_second: speeds.received,
            rate_window_seconds: speeds.window.map(rounded),
            rate_is_rough: speeds.is_rough,
            share_percent: None,
            ring_full_drops_total: counts.map(|counts| counts.dropped),
            ring_full_drops_per_second: speeds.dropped,
            taken_packets_total: counts.and_then(|counts| counts.taken),
            backlog_packets: counts.and_then(|counts| counts.backlog(at_ns)),
            program_counters: socket.program_counters.clone(),
            program_counters_age_seconds: socket.program_counters_age(at_ns).map(rounded),
        };
        (member, speeds.share)
    }

    fn speeds(&mut self, key: Key, after: Counts) -> Speeds {
        let Some(before) = self.counts.get(&key) else {
            return Speeds::default();
        };
        if before.read_ns == after.read_ns && !after.waits {
            return self.unread(key, after);
        }
        let speeds = self.between(before, &after);
        self.speeds.insert(key, speeds);
        speeds
    }

    /// The rates of a member that has not read its counters again: the rates of the last interval.
    /// If these are unknown and the interval is long enough, the rates are 0, because a member that
    /// takes packets reads its counters often.
    fn unread(&self, key: Key, counts: Counts) -> Speeds {
        let (first, last) = self.looks;
        let was_quiet = last.saturating_sub(first) >= 2 * REFRESH_NS;
        let zero = was_quiet.then_some(0.0);
        let known = self.speeds.get(&key).copied().unwrap_or_default();
        let is_old = last.saturating_sub(counts.read_ns) > self.slack();
        Speeds {
            received: known.received.or(zero),
            dropped: known.dropped.or(zero),
            share: known.share.or(zero),
            window: known.window,
            is_rough: known.is_rough || is_old,
        }
    }

    /// Rates over the time between the two readings of the member's counters. A member that is
    /// short of CPU time reads its counters late, while the kernel continues to give it packets. So
    /// the time between the snapshots would be the wrong divisor. If a member waits for packets,
    /// its counters are current at the time of the snapshot.
    fn between(&self, before: &Counts, after: &Counts) -> Speeds {
        let (first, last) = self.looks;
        let until = if after.waits { last } else { after.read_ns };
        let waited = before.waits && until.saturating_sub(first) >= REFRESH_NS / 2;
        // If the member read its counters soon after the first snapshot, these packets came
        // earlier: a block of packets ends the wait when it is complete.
        let from = if waited { first } else { before.read_ns };
        let seconds = super::seconds(from, until);
        let per_second = |count: fn(&Counts) -> u64| {
            rate(Some(count(before)), Some(count(after)), Some(seconds))
        };
        let received = per_second(|counts| counts.received);
        let is_rough = self.is_rough(until.saturating_sub(from));
        let share = |rate: f64| match is_rough {
            true => rate,
            false => rate * self.common(from, until),
        };
        Speeds {
            received,
            dropped: per_second(|counts| counts.dropped),
            share: received.map(share),
            window: received.map(|_| seconds),
            is_rough: is_rough && received.is_some(),
        }
    }

    /// Whether a window differs so much from the interval that its rate does not represent the
    /// interval.
    fn is_rough(&self, window_ns: u64) -> bool {
        let (first, last) = self.looks;
        let interval = last.saturating_sub(first);
        window_ns.abs_diff(interval) > self.slack() || window_ns < REFRESH_NS / 2
    }

    /// Allowed difference between a window and the interval, in nanoseconds: half the interval, but
    /// at least the time of two readings.
    fn slack(&self) -> u64 {
        let (first, last) = self.looks;
        (last.saturating_sub(first) / 2).max(2 * REFRESH_NS)
    }

    /// The part of the interval between the two snapshots that `from..until` covers, as a number
    /// from 0 to 1. It is 1 for a member that takes packets all the time, and less for a member
    /// that has stopped. The end of the interval, [`REFRESH_NS`] long, is left out if the interval
    /// is longer than that.
    fn common(&self, from: u64, until: u64) -> f64 {
        let (first, last) = self.looks;
        let end = Some(last.saturating_sub(REFRESH_NS)).filter(|&end| end > first);
        let end = end.unwrap_or(last);
        super::seconds(from.max(first), until.min(end)) / super::seconds(first, end)
    }
}

fn key(socket: &Socket) -> Key {
    let group = socket.group.as_ref().map(|group| group.number);
    let pid = socket.process.as_ref().and_then(|process| process.pid);
    (socket.ifindex, group, socket.inode, pid)
}
