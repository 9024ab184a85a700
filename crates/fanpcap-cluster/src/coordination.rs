//! Messages of a coordination engine (embedded protocol, or etcd) to nodes and coordinators.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::num::ParseIntError;
use std::str::FromStr;

use fanpcap_select::{Filter, Key, Selection};

use crate::identity::{NodeId, Revision};
use crate::topology::Topology;

/// What a node says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// Which node.
    pub node: NodeId,
    /// Drawn at random when the node's machine booted: two machines with one id differ in it.
    pub boot: u64,
    /// How many buckets it is due, compared with the others.
    pub weight: u16,
    /// Where it may be reached on the control network.
    pub address: SocketAddr,
    /// Its version and settings; `None`: an earlier version does not say.
    pub setup: Option<Setup>,
}

/// A node's version and settings, for operators. They change nothing that the cluster does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The version of fanpcap.
    pub version: Version,
    /// In capture mode, the bytes of each packet that are sent; `None`: distribution mode.
    pub header: Option<u16>,
    /// What its settings say that packets are selected by. It selects by the topology's.
    pub key: Key,
}

/// A version of fanpcap: major, minor and patch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub [u8; 3]);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl FromStr for Version {
    type Err = ParseIntError;

    /// Reads `1.2.3`. What is behind the third number, as in `1.2.3-rc1`, is left out; a number
    /// that lacks is 0.
    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let mut version = [0; 3];
        let numbers = text.split(['-', '+']).next().unwrap_or_default();
        for (number, digits) in version.iter_mut().zip(numbers.split('.')) {
            *number = digits.parse()?;
        }
        Ok(Self(version))
    }
}

/// A message of the engine to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeEvent {
    /// A topology to follow, unless the node has a newer one.
    Topology(Revision, Box<Topology>),
    /// The cluster does not take this node.
    Refused(Refusal),
    /// Whether the engine is in reach. A node that is cut off goes on as before.
    Reach(bool),
    /// The engine has not answered since the node began; or it refuses what the node asks, though
    /// it did not before: a password, a permission, a certificate. What to tell the operator.
    Denied(String),
}

/// Why a cluster does not take a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another machine has the node's id: a cloned image.
    TakenId = 1,
    /// The cluster has as many nodes as it can have.
    Full = 2,
    /// The node speaks a version that the coordinator does not.
    Version = 3,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TakenId => {
                "another machine has its node id: is one a copy of the other? Remove the node id's \
                 file on one of them"
            }
            Self::Full => "the cluster has as many nodes as it can have",
            Self::Version => "the coordinator does not speak its version: update the older one",
        })
    }
}

/// A node that the engine holds for alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveNode {
    /// What it says of itself.
    pub announcement: Announcement,
    /// The newest topology that it captures by.
    pub acknowledged: Option<Revision>,
}

/// What the operator wants.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DesiredState {
    /// How packets are selected.
    pub selection: Selection,
    /// Where records go; empty in distribution mode.
    pub analyzers: Vec<SocketAddr>,
    /// Which packets are captured; `None`: all. The active coordinator has it of its own settings.
    pub filter: Option<Filter>,
    /// Nodes that are to have no buckets.
    pub drained: BTreeSet<NodeId>,
    /// Weights that count in the place of what nodes say.
    pub weights: BTreeMap<NodeId, u16>,
}

/// A message of the engine to a coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// Whether this coordinator is the active one.
    pub leads: bool,
    /// The nodes that are alive.
    pub live: Vec<LiveNode>,
    /// The cluster's topology.
    pub topology: Option<(Revision, Box<Topology>)>,
    /// Whether nodes may capture by a newer topology, which nobody has any more. They come back to
    /// this one only if it is written again.
    pub is_outrun: bool,
    /// What the operator wants.
    pub desired: DesiredState,
}

/// How a cluster is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterStatus {
    /// What the coordinator sees.
    pub view: View,
    /// Which coordinator leads, as it calls itself; `None` if none does.
    pub leader: Option<String>,
    /// What an operator should know or do, a sentence each.
    pub notes: Vec<String>,
}

/// Why a topology was not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// Another coordinator leads.
    NotLeading,
    /// The cluster's topology is another by now. Poll, then plan anew.
    Changed,
    /// The engine was out of reach afterwards: it may have the topology. Poll, then plan anew.
    Unknown,
    /// The coordinator could not store the topology, so nobody hears of it. It is stored and sent
    /// later, or never.
    Unstored,
    /// The engine does not serve: what it refuses, or which system call failed.
    Engine(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeading => f.write_str("another coordinator leads"),
            Self::Changed => f.write_str("the topology has changed in the meantime"),
            Self::Unknown => f.write_str("the coordination engine did not say whether it wrote"),
            Self::Unstored => f.write_str("the coordinator's file can't be written"),
            Self::Engine(error) => error.fmt(f),
        }
    }
}

impl Error for WriteError {}
