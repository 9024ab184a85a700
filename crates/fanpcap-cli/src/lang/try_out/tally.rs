//! Counts packets and bytes of each member, of no member, and of several members.

use std::collections::BTreeMap;

use fanpcap_steer::native::{Decision, Host, Outcome};
use serde::Serialize;

use super::members::Members;

/// Packets and their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Amount {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}

/// The counts of all packets.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// All packets that were read.
    pub(super) read: Amount,
    /// Packets that at least one member gets.
    pub(super) given: Amount,
    /// The packets of each member.
    pub(super) members: Vec<Amount>,
    /// Packets that no member gets.
    pub(super) dropped: Amount,
    /// Packets that more than one member gets.
    pub(super) copied: Amount,
    /// Copies beyond the first of each packet.
    pub(super) copies: u64,
    /// Packets for classes that no member has, by class.
    pub(super) classes: BTreeMap<u8, u64>,
    /// Packets that the host gets in addition to members, and packets that only the host gets.
    pub(super) host: [u64; 2],
}

impl Tally {
    /// A tally for `members` members.
    pub(super) fn of(members: usize) -> Self {
        Self {
            members: vec![Amount::default(); members],
            ..Self::default()
        }
    }

    /// Counts a packet that these members get.
    pub(super) fn take(&mut self, outcome: &Outcome, members: Members, bytes: u64) {
        self.read.add(bytes);
        let mut times = 0;
        for member in members.numbers() {
            self.members[member].add(bytes);
            times += 1;
        }
        match times {
            0 if outcome.decision != Decision::Drop => {
                *self.classes.entry(outcome.class).or_default() += 1
            }
            0 => self.dropped.add(bytes),
            _ => self.given.add(bytes),
        }
        if times > 1 {
            self.copied.add(bytes);
            self.copies += times - 1;
        }
        match outcome.host {
            Host::Unsaid => {}
            Host::Too => self.host[0] += 1,
            Host::Only => self.host[1] += 1,
        }
    }

    /// The busiest member's packets divided by the mean; `None` without packets.
    pub(super) fn skew(&self) -> Option<f64> {
        let most = self.members.iter().map(|member| member.packets).max()?;
        let sum: u64 = self.members.iter().map(|member| member.packets).sum();
        (sum > 0).then(|| most as f64 * self.members.len() as f64 / sum as f64)
    }
}
