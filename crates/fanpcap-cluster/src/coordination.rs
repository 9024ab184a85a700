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

/// A node's announcement: its id, weight, address and settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// The node's id.
    pub node: NodeId,
    /// A random number, made when the machine booted. Two machines with the same node id have
    /// different numbers.
    pub boot: u64,
    /// The node's share of the buckets, compared with the other nodes' weights.
    pub weight: u16,
    /// The node's address on the control network.
    pub address: SocketAddr,
    /// The node's version and settings; `None` if its version does not send them.
    pub setup: Option<Setup>,
}

/// A node's version and settings, shown to operators. No coordinator plans by them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The version of fanpcap.
    pub version: Version,
    /// In capture mode, how many bytes of each packet are sent; `None` in distribution mode.
    pub header: Option<u16>,
    /// The selection key in the node's settings; the node selects by the topology's key instead.
    pub key: Key,
    /// The number of devices that the node monitors; `None` if its version does not send it.
    pub devices: Option<u8>,
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

    /// Reads `1.2.3`. Ignores what follows, as in `1.2.3-rc1`. A missing number is 0.
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
    /// Whether the node reaches the engine. A node that is cut off goes on capturing.
    Reach(bool),
    /// Why the node gets no topology, for the operator: the engine has not answered yet, or refuses
    /// the node's password, permission or certificate, or the node can't read the topology.
    Denied(String),
}

/// The message to operators about a topology that this version can't read.
pub fn unreadable_topology(revision: Revision) -> String {
    format!(
        "topology {revision} can't be read: a later version of fanpcap has written it; update \
         fanpcap on this machine"
    )
}

/// Why a cluster does not take a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another machine has the node's id, for example because its disk image was copied.
    TakenId = 1,
    /// The cluster has the maximum number of nodes.
    Full = 2,
    /// The coordinator does not support the node's version of the protocol.
    Version = 3,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TakenId => {
                "another machine has its node id: is one a copy of the other? Remove the node id's \
                 file on one of them"
            }
            Self::Full => "the cluster already has the maximum number of nodes",
            Self::Version => "the coordinator has another protocol version: update the older one",
        })
    }
}

/// A node that is alive, according to the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveNode {
    /// The node's announcement.
    pub announcement: Announcement,
    /// The newest topology that the node has acknowledged.
    pub acknowledged: Option<Revision>,
}

/// The settings of the cluster, and the operator's changes by `drain` and `weight`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DesiredState {
    /// How packets are selected.
    pub selection: Selection,
    /// Where records go; empty in distribution mode.
    pub analyzers: Vec<SocketAddr>,
    /// Which packets are captured (`None`: all), from the active coordinator's settings.
    pub filter: Option<Filter>,
    /// Nodes that get no buckets.
    pub drained: BTreeSet<NodeId>,
    /// Weights that replace the ones that nodes announce.
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
    /// Whether nodes may capture by a lost topology that is newer than `topology`. Such nodes
    /// follow `topology` only after it is written again with a greater revision.
    pub is_outrun: bool,
    /// The settings of the cluster, and the operator's changes by `drain` and `weight`.
    pub desired: DesiredState,
}

/// A cluster's state, for the operator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterStatus {
    /// What the coordinator sees.
    pub view: View,
    /// The topology's revision if this version can't read the topology. `view` then has no
    /// topology.
    pub unreadable: Option<Revision>,
    /// The name by which the leading coordinator calls itself; `None` if no coordinator leads.
    pub leader: Option<String>,
    /// Sentences on what the operator should know or do.
    pub notes: Vec<String>,
    /// How many control messages the coordinator refused, by the cause's name; none with etcd.
    pub refused: Vec<(&'static str, u64)>,
}

/// Why a topology was not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// Another coordinator leads.
    NotLeading,
    /// The cluster's topology has changed. Poll, then plan again.
    Changed,
    /// The connection broke. The engine may have stored the topology. Poll, then plan again.
    Unknown,
    /// The coordinator could not write its file, and so did not send the topology. It tries again.
    Unstored,
    /// The engine refused the request, or a system call failed.
    Engine(Box<dyn Error + Send + Sync>),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeading => f.write_str("another coordinator leads"),
            Self::Changed => f.write_str("the topology has changed in the meantime"),
            Self::Unknown => f.write_str("the engine did not say whether it stored the topology"),
            Self::Unstored => f.write_str("the coordinator's file can't be written"),
            Self::Engine(error) => error.fmt(f),
        }
    }
}

impl Error for WriteError {}
