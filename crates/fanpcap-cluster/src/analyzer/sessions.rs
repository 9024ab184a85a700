//! Which records of the nodes' sessions came, and which are missing.

use std::collections::BTreeMap;

use fanpcap_buckets::layout::BUCKETS;

use super::Analyzer;
use super::stream::{IdleTime, Stream};
use crate::identity::NodeId;
use crate::loss_account::Counts;

impl Analyzer {
    /// For each node, how many records were sent and not received.
    pub fn missing(&self) -> BTreeMap<NodeId, u64> {
        let mut missing = BTreeMap::new();
        for ((node, _, _), stream) in &self.streams {
            *missing.entry(*node).or_default() += stream.missing();
        }
        missing
    }

    /// How many of a node's records were sent and not received.
    pub fn missing_of(&self, node: NodeId) -> u64 {
        let sessions = self
            .streams
            .range((node, 0, 0)..=(node, u64::MAX, u64::MAX));
        sessions.map(|(_, stream)| stream.missing()).sum()
    }

    /// The time in which the node had no packets to send; `None` if it has packets to send.
    pub fn quiet(&self, node: NodeId, boot: u64) -> Option<IdleTime> {
        self.newest(node, boot)?.quiet
    }

    /// The time before which all packets of the node have come or are lost, except packets that its
    /// CPUs read out of order. Nanoseconds since 1970 by the node's clock; `None` without a
    /// session.
    pub fn reached(&self, node: NodeId, boot: u64) -> Option<u64> {
        let stream = self.newest(node, boot)?;
        Some(stream.heard.saturating_add_signed(stream.ahead))
    }

    /// The session whose batch came last.
    fn newest(&self, node: NodeId, boot: u64) -> Option<&Stream> {
        let sessions = self.streams.range((node, boot, 0)..=(node, boot, u64::MAX));
        let newest = sessions.max_by_key(|(_, stream)| stream.heard);
        newest.map(|(_, stream)| stream)
    }

    /// How many records have come in the node's sessions that began after `since`, by bucket.
    /// `since` is in nanoseconds since 1970 by the node's clock. `None` without such a session.
    pub fn received(&self, node: NodeId, boot: u64, since: u64) -> Option<Box<Counts>> {
        let sessions = self.streams.range((node, boot, 0)..=(node, boot, u64::MAX));
        let after = |began: u64| began.saturating_add(self.settings.skew) >= since;
        let mut sum: Option<Box<Counts>> = None;
        for (_, stream) in sessions.filter(|(_, stream)| after(stream.began)) {
            let sum = sum.get_or_insert_with(|| Box::new([0; BUCKETS]));
            for (sum, captured) in sum.iter_mut().zip(stream.captured.iter()) {
                *sum += captured;
            }
        }
        sum
    }
}
