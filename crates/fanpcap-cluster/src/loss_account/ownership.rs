//! Finds in the known topologies which buckets a node may have had.

use std::collections::VecDeque;

use fanpcap_buckets::layout::BUCKETS;

use crate::identity::{NodeId, Revision};
use crate::topology::{Phase, Topology};

/// The number of topologies that are remembered.
const REMEMBERED: usize = 64;

/// A flag for each bucket.
pub(super) type Flags = [bool; BUCKETS];

/// Adds flags; `None` stands for all.
pub(super) fn add_flags(flags: &mut Flags, others: Option<&Flags>) {
    for (bucket, flag) in flags.iter_mut().enumerate() {
        *flag |= others.is_none_or(|others| others[bucket]);
    }
}

#[derive(Debug)]
struct KnownTopology {
    revision: Revision,
    topology: Topology,
    /// Whether this topology and the previous one show every bucket that a node had between the
    /// two.
    follows: bool,
    /// Whether the two certainly belong to different branches of a fork (two leaders at once).
    forks: bool,
}

/// The last topologies.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    /// The topologies, the newest last.
    topologies: VecDeque<KnownTopology>,
}

impl Ownership {
    /// Takes a topology. Returns the previous topology's revision; `None` if `revision` is not
    /// newer.
    pub(super) fn follow(&mut self, revision: Revision, topology: Topology) -> Option<Revision> {
        let before = self.topologies.back();
        let newest = before.map_or(Revision(0), |known| known.revision);
        if newest >= revision {
            return None;
        }
        let follows = before.is_some_and(|before| is_next(&before.topology, &topology));
        let may_miss =
            |before: &KnownTopology| topology.epoch.saturating_sub(before.topology.epoch) > 1;
        let forks = before.is_some_and(|before| {
            let is_other = term(before.revision) != term(revision);
            is_other && !follows && !may_miss(before)
        });
        if self.topologies.len() == REMEMBERED {
            self.topologies.pop_front();
        }
        self.topologies.push_back(KnownTopology {
            revision,
            topology,
            follows,
            forks,
        });
        Some(newest)
    }

    /// The nodes of the newest topology.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        let newest = self.topologies.back().into_iter();
        newest.flat_map(|known| known.topology.nodes.iter().map(|entry| entry.node))
    }

    /// The buckets that the newest topology gives to a node; `None` if the node is not in it.
    pub(super) fn now(&self, node: NodeId) -> Option<Box<Flags>> {
        let topology = &self.topologies.back()?.topology;
        let slot = topology.entry(node)?.slot;
        let has = |bucket| topology.captures(slot, bucket).is_some();
        Some(Box::new(std::array::from_fn(has)))
    }

    /// Whether the newest topology gives buckets to a node.
    pub(super) fn has_buckets(&self, node: NodeId) -> bool {
        self.now(node).is_some_and(|has| has.contains(&true))
    }

    /// How many of the known topologies are not newer than `revision`.
    fn until(&self, revision: Revision) -> usize {
        let is_newer = |known: &KnownTopology| known.revision > revision;
        let newer = self.topologies.iter().position(is_newer);
        newer.unwrap_or(self.topologies.len())
    }

    /// Whether `revision` is of another branch of a fork (two leaders at once) than the next known
    /// topology. A coordinator gives successive epochs to the topologies that it writes. So between
    /// two known topologies with successive epochs there is none of their own branch. If epochs lie
    /// between the two, a topology of another coordinator than the later one may be of either.
    fn is_beside(&self, revision: Revision) -> bool {
        let after = self.until(revision);
        let before = after.checked_sub(1).map(|at| &self.topologies[at]);
        before
            .zip(self.topologies.get(after))
            .is_some_and(|(before, after)| {
                let epochs = after.topology.epoch.saturating_sub(before.topology.epoch);
                let is_other = term(revision) != term(after.revision);
                before.revision != revision && (epochs <= 1 || is_other)
            })
    }

    /// Whether the nodes that followed `revision` may follow another branch of a fork than the
    /// newest known topology.
    pub(super) fn may_be_astray(&self, revision: Revision) -> bool {
        let after = self.until(revision);
        let newest = self.topologies.back().map(|known| known.revision);
        let is_outside = after == 0 || newest < Some(revision);
        let mut later = self.topologies.iter().skip(after);
        is_outside || self.is_beside(revision) || later.any(|known| known.forks)
    }

    /// The index of the topology that shows which buckets the nodes that followed `revision` had.
    fn position(&self, revision: Revision) -> Option<usize> {
        let after = self.until(revision);
        let at = after.checked_sub(1)?;
        let is_same = self.topologies[at].revision == revision;
        let follows = self
            .topologies
            .get(after)
            .is_some_and(|known| known.follows);
        (is_same || follows && !self.is_beside(revision)).then_some(at)
    }

    /// Whether no later topology will show which buckets the nodes that followed the topology
    /// `revision` had: the known ones show it, or the topology is of another branch.
    pub(super) fn knows(&self, revision: Revision) -> bool {
        self.position(revision).is_some() || self.is_beside(revision)
    }

    /// The buckets that a node may have had from `since` on; `None` if it may have had any bucket.
    pub(super) fn since(&self, node: NodeId, since: Revision) -> Option<Box<Flags>> {
        self.from(node, self.position(since)?)
    }

    /// The buckets that a node may have had in all known topologies; `None` if that may be any
    /// bucket.
    pub(super) fn ever(&self, node: NodeId) -> Option<Box<Flags>> {
        self.from(node, 0)
    }

    fn from(&self, node: NodeId, at: usize) -> Option<Box<Flags>> {
        self.topologies.get(at)?;
        let mut had = Box::new([false; BUCKETS]);
        for (number, known) in self.topologies.iter().enumerate().skip(at) {
            if number > at && !known.follows {
                return None;
            }
            if let Some(entry) = known.topology.entry(node) {
                for (bucket, had) in had.iter_mut().enumerate() {
                    *had |= known.topology.captures(entry.slot, bucket).is_some();
                }
            }
        }
        Some(had)
    }
}

/// The term of the coordinator that wrote a topology.
fn term(revision: Revision) -> u64 {
    revision.0 >> 32
}

/// Whether `before` and `after` show each bucket that a node had between the two. If `after` is
/// stable, an unknown union may lie between the two, because its new owners are the owners in
/// `after`.
fn is_next(before: &Topology, after: &Topology) -> bool {
    // After a fork (two leaders at once), `after` may have replaced a topology other than `before`.
    let keeps = |bucket: usize| {
        let owner = after.owners[bucket];
        let new_owners = before.new_owners.as_ref();
        before.owners[bucket] == owner || new_owners.is_some_and(|new| new[bucket] == owner)
    };
    match after.epoch.saturating_sub(before.epoch) {
        1 => (0..BUCKETS).all(keeps),
        2 => after.phase() == Phase::Stable,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use fanpcap_buckets::Slot;
    use fanpcap_select::Selection;

    use super::*;
    use crate::topology::NodeEntry;

    /// A topology of the nodes 0 to 2. `owner` has the first bucket; in a union, `new_owner` gets
    /// it. All other buckets belong to node 2.
    fn topology(epoch: u64, owner: u8, new_owner: Option<u8>) -> Topology {
        let entry = |node: u8| NodeEntry {
            slot: Slot(node),
            node: NodeId(node.into()),
            weight: 1,
        };
        let owners = |first: u8| {
            let mut owners = Box::new([Some(Slot(2)); BUCKETS]);
            owners[0] = Some(Slot(first));
            owners
        };
        Topology {
            epoch,
            selection: Selection::default(),
            nodes: (0..3).map(entry).collect(),
            owners: owners(owner),
            new_owners: new_owner.map(owners),
            analyzers: Vec::new(),
            filter: None,
        }
    }

    /// For each node, whether it may have had the first bucket in the topology `since` or later.
    fn had(ownership: &Ownership, since: u64) -> [Option<bool>; 3] {
        [0, 1, 2].map(|node| Some(ownership.since(NodeId(node), Revision(since))?[0]))
    }

    #[test]
    fn a_node_had_what_known_topologies_gave_it_since() {
        let mut ownership = Ownership::default();
        assert_eq!(had(&ownership, 5), [None; 3]);
        assert_eq!(
            ownership.follow(Revision(5), topology(1, 0, None)),
            Some(Revision(0))
        );
        assert_eq!(had(&ownership, 5), [Some(true), Some(false), Some(false)]);
        // The union between these two topologies was not seen.
        assert_eq!(
            ownership.follow(Revision(9), topology(3, 1, None)),
            Some(Revision(5))
        );
        assert_eq!(ownership.follow(Revision(9), topology(3, 2, None)), None);
        let both = [Some(true), Some(true), Some(false)];
        assert_eq!([5, 7].map(|since| had(&ownership, since)), [both; 2]);
        assert_eq!(had(&ownership, 9), [Some(false), Some(true), Some(false)]);
        assert_eq!(had(&ownership, 10), [None; 3], "10 is newer than all");
        assert_eq!(had(&ownership, 4), [None; 3], "4 is older than all");
        assert!(ownership.knows(Revision(7)) && !ownership.knows(Revision(4)));
    }

    #[test]
    fn a_topology_that_was_not_seen_may_have_given_any_bucket_to_any_node() {
        let mut ownership = Ownership::default();
        ownership.follow(Revision(1), topology(1, 0, None));
        // The topology of epoch 2 is not known. It may be a union in which any node is the new
        // owner.
        ownership.follow(Revision(3), topology(3, 0, Some(2)));
        assert_eq!(had(&ownership, 1), [None; 3]);
        assert_eq!(had(&ownership, 2), [None; 3]);
        assert_eq!(had(&ownership, 3), [Some(true), Some(false), Some(true)]);
        ownership.follow(Revision(5), topology(5, 2, None));
        ownership.follow(Revision(9), topology(8, 2, None));
        assert_eq!(had(&ownership, 3), [None; 3]);
        assert_eq!(had(&ownership, 9), [Some(false), Some(false), Some(true)]);
        assert!(ownership.ever(NodeId(1)).is_none());
        // Another coordinator has written its own topologies of the epochs 8 and 9.
        ownership.follow(Revision(12), topology(9, 1, None));
        assert_eq!(had(&ownership, 9), [None; 3]);
    }

    /// Coordinator 2 begins with the topology 1 of coordinator 1, and does not know the topologies
    /// 2 and 3.
    #[test]
    fn revisions_between_successive_epochs_are_of_another_branch() {
        let second = 2 << 32;
        let mut ownership = Ownership::default();
        ownership.follow(Revision(1), topology(1, 0, None));
        ownership.follow(Revision(second + 2), topology(2, 0, None));
        let astray = |ownership: &Ownership, revisions: &[u64]| {
            let may_be = |it: &u64| ownership.may_be_astray(Revision(*it));
            revisions.iter().map(may_be).collect::<Vec<_>>()
        };
        let revisions = [0, 1, 2, 3, second + 2, second + 3];
        let expected = [true, false, true, true, false, true];
        assert_eq!(astray(&ownership, &revisions), expected);
        assert_eq!(had(&ownership, 2), [None; 3]);
        assert!(ownership.knows(Revision(2)) && !ownership.knows(Revision(second + 3)));
        // The union before this topology is not known.
        ownership.follow(Revision((3 << 32) + 4), topology(4, 1, None));
        let revisions = [second + 2, second + 3, (3 << 32) + 3, (3 << 32) + 4];
        assert_eq!(astray(&ownership, &revisions), [false, true, false, false]);
        // This topology does not follow the one before it.
        ownership.follow(Revision((4 << 32) + 5), topology(5, 2, None));
        let revisions = [(3 << 32) + 3, (3 << 32) + 4, (4 << 32) + 5];
        assert_eq!(astray(&ownership, &revisions), [true, true, false]);
    }
}
