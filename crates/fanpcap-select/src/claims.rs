//! Which buckets of the cluster's table a node captures.

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_buckets::{Owners, Slot};

/// A node's claim to a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Claim {
    /// Another node captures the bucket's packets.
    #[default]
    Elsewhere = 0,
    /// Only this node captures the bucket's packets.
    Mine = 1,
    /// In a union, this node and another node capture and mark the bucket's packets.
    Shared = 2,
}

/// A node's claims to all buckets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claims(Box<[Claim; BUCKETS]>);

impl Claims {
    /// A node's claims. `of` returns the claim to each bucket.
    pub fn new(of: impl Fn(usize) -> Claim) -> Self {
        let mut claims = Box::new([Claim::Elsewhere; BUCKETS]);
        for (bucket, claim) in claims.iter_mut().enumerate() {
            *claim = of(bucket);
        }
        Self(claims)
    }

    /// The claims of a node that captures nothing.
    pub fn none() -> Self {
        Self::new(|_| Claim::Elsewhere)
    }

    /// The claim to a bucket. `bucket` is taken modulo [`BUCKETS`].
    pub fn of(&self, bucket: usize) -> Claim {
        self.0[bucket % BUCKETS]
    }

    /// The number of buckets whose packets the node captures.
    pub fn count(&self) -> usize {
        let mine = self.0.iter().filter(|claim| **claim != Claim::Elsewhere);
        mine.count()
    }

    /// The claims as the BPF program reads them: one byte for each bucket.
    pub fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().map(|claim| *claim as u8)
    }
}

/// The table of DiCAP's formulas, `C mod N = Pi` and `hash(I) mod N = Pi`, for `N` nodes: bucket
/// `b` belongs to node `b mod N`. The table agrees with the formulas only if `N` divides the number
/// of buckets. Otherwise the first nodes have one bucket more than the other nodes.
///
/// `slots` are the nodes' slots, ordered by `Pi`. Without nodes, no bucket has an owner.
pub fn in_turn(slots: &[Slot]) -> Box<Owners> {
    let mut owners = Box::new([None; BUCKETS]);
    for (owner, slot) in owners.iter_mut().zip(slots.iter().cycle()) {
        *owner = Some(*slot);
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_every_nth_bucket_in_turn() {
        let slots = [Slot(4), Slot(0), Slot(9)];
        let owners = in_turn(&slots);
        for (bucket, owner) in owners.iter().enumerate() {
            assert_eq!(*owner, Some(slots[bucket % 3]));
        }
        assert!(in_turn(&[]).iter().all(Option::is_none));
    }

    #[test]
    fn claims_are_bytes_of_the_table() {
        let claims = Claims::new(|bucket| match bucket {
            7 => Claim::Mine,
            9 => Claim::Shared,
            _ => Claim::Elsewhere,
        });
        let bytes: Vec<u8> = claims.bytes().collect();
        assert_eq!((bytes.len(), bytes[6], bytes[7], bytes[9]), (4096, 0, 1, 2));
        assert_eq!(claims.count(), 2);
        assert_eq!(claims.of(BUCKETS + 7), Claim::Mine);
    }
}
