//! Node ids, and the revisions of topologies.

use std::fmt;

/// A capture node, for as long as its machine exists (DiCAP's 32-bit node id).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

/// Orders all topologies of a cluster: the newer one has the greater revision.
///
/// The value is etcd's `mod_revision`, or the coordinator's term (upper half) and a count that
/// begins at a random number (lower half). Every batch has the revision of its topology. So
/// analyzers recognize packets that a node captured after it had lost their bucket to another node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
