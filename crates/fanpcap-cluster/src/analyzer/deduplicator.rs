//! Finds the packets that two nodes captured while a bucket moved.
//!
//! In real traffic, one packet in twenty has a true repeat: a retransmission or a keep-alive. So a
//! packet that comes again need not be a duplicate. But each node captures a packet once. So a
//! delivered packet has at most one duplicate from each other node. For example, if node A captured
//! two equal packets, and node B captured three packets equal to them, the analyzer delivers three.
//! Duplicates have nearly equal stamps and the same bucket. With round robin, a true repeat has
//! another bucket.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};

/// The maximum number of remembered packets. Duplicates of packets beyond it are not found.
const MOST: usize = 1 << 20;

/// The maximum number of packets that are remembered for late records; about 50 MB.
const REMEMBERED: usize = 1 << 18;

/// A packet that was delivered, and the nodes that captured it.
#[derive(Debug)]
struct SeenPacket {
    stamp: u64,
    nodes: Vec<u16>,
}

type Digest = (u64, u64);

/// Remembers the packets of buckets that move.
#[derive(Debug)]
pub struct Deduplicator {
    seed: u64,
    skew: u64,
    late: u64,
    packets: HashMap<Digest, VecDeque<SeenPacket>>,
    order: VecDeque<(u64, Digest)>,
    /// The newest stamp of the packets that were forgotten.
    forgotten: u64,
}

impl Deduplicator {
    /// The stamps of duplicates differ by at most `skew`. Because `seed` is random, an attacker
    /// can't construct two different packets with the same digest. Remembers each packet for `late`
    /// nanoseconds longer than the skew, if there is room, because a duplicate of the packet may
    /// come late. Packets with stamps before `begin` were delivered by another analyzer.
    pub fn new(skew: u64, seed: u64, late: u64, begin: u64) -> Self {
        Self {
            seed,
            skew,
            late,
            packets: HashMap::new(),
            order: VecDeque::new(),
            forgotten: begin,
        }
    }

    /// Whether a packet of `node` is a double. `packet` is its bucket, its bytes on the wire, and
    /// its captured bytes. The caller passes packets in the order of their stamps, in nanoseconds.
    /// Only late packets may come out of order.
    pub fn is_double(&mut self, stamp: u64, node: u16, packet: (u16, u32, &[u8])) -> bool {
        self.forget(stamp);
        let digest = self.digest(packet);
        if self.order.len() >= MOST && !self.packets.contains_key(&digest) {
            return false;
        }
        let equal = self.packets.entry(digest).or_default();
        let apart = |given: &SeenPacket| given.stamp.abs_diff(stamp);
        let others = equal
            .iter_mut()
            .filter(|given| !given.nodes.contains(&node));
        let nearest = others.min_by_key(|given| apart(given));
        if let Some(given) = nearest.filter(|given| apart(given) <= self.skew) {
            given.nodes.push(node);
            return true;
        }
        if self.order.len() < MOST {
            let nodes = vec![node];
            equal.push_back(SeenPacket { stamp, nodes });
            self.order.push_back((stamp, digest));
        }
        false
    }

    /// Whether packets were forgotten whose stamps differ from `stamp` by at most the skew.
    pub fn has_forgotten(&self, stamp: u64) -> bool {
        stamp <= self.forgotten.saturating_add(self.skew)
    }

    /// Forgets the packets that are too old to be compared with a packet whose stamp is `time`.
    pub fn forget(&mut self, time: u64) {
        let in_order = time.saturating_sub(self.skew);
        let oldest = in_order.saturating_sub(self.late);
        while let Some(&(stamp, digest)) = self.order.front() {
            let is_needed = stamp >= in_order || self.order.len() <= REMEMBERED;
            if stamp >= oldest && is_needed {
                return;
            }
            self.order.pop_front();
            self.forgotten = self.forgotten.max(stamp);
            if let Some(equal) = self.packets.get_mut(&digest) {
                equal.pop_front();
                if equal.is_empty() {
                    self.packets.remove(&digest);
                }
            }
        }
    }

    /// A digest of 128 bits: two hashes with different seeds.
    fn digest(&self, (bucket, wire_length, captured): (u16, u32, &[u8])) -> Digest {
        let hash = |seed: u64| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(seed);
            hasher.write_u16(bucket);
            hasher.write_u32(wire_length);
            hasher.write(captured);
            hasher.finish()
        };
        (hash(self.seed), hash(!self.seed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_packet_of_another_bucket_is_a_true_repeat() {
        let mut packets = Deduplicator::new(100, 1, 0, 0);
        assert!(!packets.is_double(10, 0, (7, 60, b"a")));
        assert!(!packets.is_double(11, 1, (8, 60, b"a")), "another bucket");
        assert!(packets.is_double(12, 1, (7, 60, b"a")));
    }

    #[test]
    fn packets_of_forgotten_times_are_told() {
        let mut packets = Deduplicator::new(100, 1, 1000, 0);
        let packet = (7, 60, &b"a"[..]);
        for time in [5000, 5500, 6100] {
            assert!(!packets.is_double(time, 0, packet));
            assert!(!packets.has_forgotten(time), "{time}");
        }
        assert!(packets.is_double(5000, 1, packet), "late, and remembered");
        assert!(!packets.is_double(6101, 0, packet));
        assert!(!packets.is_double(5000, 2, packet), "late, and forgotten");
        assert!(packets.has_forgotten(5000) && packets.has_forgotten(5100));
        assert!(!packets.has_forgotten(5101));
    }
}
