//! The time between a signal to end and the copies' end. The copies leave the group together, take
//! the packets that are in their rings, and only then get the signal.

use std::time::{Duration, Instant};

use super::Watch;
use crate::ledger::Left;

/// The longest time-out of a copy that this command waits for. Libraries' time-outs of zero mean
/// that the kernel hands over a block of packets only when the block is full.
const TIMEOUT_MAX: Duration = Duration::from_secs(1);

/// How much later than its time-out the kernel may hand over a block, and an application may run.
const SLACK: Duration = Duration::from_millis(150);

/// An application may still process the packet that it took last.
const PROCESSED_WITHIN: Duration = Duration::from_millis(20);

/// The longest wait for applications that still take packets.
const LIMIT: Duration = Duration::from_secs(10);

/// When the wait has lasted this long, a message says what this command waits for.
const SAID_AFTER: Duration = Duration::from_millis(1300);

/// Members stay in their group until they end.
const UNSTOPPED: &str = "some copies can't leave the group before they end, so packets in their rings may be lost: under the kernel's modes the group must have no other members, and this command must have the right to trace the copies (CAP_SYS_PTRACE)";

/// A signal to end that is not forwarded yet.
#[derive(Debug)]
pub(super) struct LastPackets {
    signal: i32,
    since: Instant,
    /// Packets that were left in the rings when their number last fell, and when that was.
    least: u64,
    fell: Instant,
    /// Since when no packets have been left.
    empty: Option<Instant>,
    has_said: bool,
}

impl Watch<'_> {
    /// Takes the copies out of the group, if they have members. Returns whether the signal must
    /// wait until the copies have taken their last packets.
    pub(super) fn await_last_packets(&mut self, signal: i32) -> bool {
        self.scanned = None;
        self.scan();
        self.ledger.stop();
        if self.ledger.has_unstopped() {
            self.say(UNSTOPPED);
        }
        let now = Instant::now();
        let is_awaited = self.ledger.has_stopped() && self.copies.iter().any(|it| !it.is_done());
        self.last_packets = is_awaited.then_some(LastPackets {
            signal,
            since: now,
            least: u64::MAX,
            fell: now,
            empty: None,
            has_said: false,
        });
        is_awaited
    }

    /// Sends the signal to end when the copies have taken their last packets, or take none any
    /// more.
    pub(super) fn end_when_read(&mut self) {
        self.ledger.stop_newcomers();
        if self.last_packets.is_none() {
            return;
        }
        let left = self.ledger.left();
        let Some(last) = self.last_packets.as_mut() else {
            return;
        };
        let is_over = last.is_over(&left) || self.copies.iter().all(|it| it.pid().is_none());
        let signal = last.signal;
        let says = !is_over && !last.has_said && last.since.elapsed() >= SAID_AFTER;
        last.has_said |= says;
        if says {
            let left: Vec<String> = left.iter().map(Left::to_string).collect();
            self.say(&format!(
                "waiting for {}; a second signal ends the copies at once",
                left.join(", ")
            ));
        }
        if is_over {
            self.send_to_end(signal);
        }
    }
}

impl LastPackets {
    /// Whether to wait no longer.
    fn is_over(&mut self, left: &[Left]) -> bool {
        if left.is_empty() {
            let empty = self.empty.get_or_insert_with(Instant::now);
            return empty.elapsed() >= PROCESSED_WITHIN;
        }
        self.empty = None;
        let packets = left.iter().filter_map(|it| it.packets).sum();
        if packets < self.least {
            (self.least, self.fell) = (packets, Instant::now());
        }
        let timeout = left.iter().map(|it| it.timeout).max().unwrap_or_default();
        let limit = timeout.min(TIMEOUT_MAX) + SLACK;
        self.fell.elapsed() >= limit || self.since.elapsed() >= LIMIT
    }
}
