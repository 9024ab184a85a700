//! What a node and a coordinator ask of a coordination engine.
//!
//! An engine that is out of reach is no error: nodes are fail-static and go on as before. So a
//! call fails only where waiting mends nothing: a wrong key, a missing permission, a mistake in
//! settings.

use std::fmt;
use std::io;
use std::time::Duration;

use fanpcap_cluster::control::Wish;
use fanpcap_cluster::{Announcement, NodeEvent, Revision, Topology, View};

use crate::conf::Conf;

/// A coordination engine as a node sees it.
pub trait NodeSide {
    /// Sets what the node says of itself. The engine joins the cluster with the first announcement.
    ///
    /// # Errors
    ///
    /// [`CoordinationError`]; not where the engine is out of reach.
    fn announce(&mut self, announcement: &Announcement) -> Result<(), CoordinationError>;

    /// Waits at most `wait` for news and returns them, the oldest first. Keeps the node alive in
    /// the engine's eyes: call it at least once a second.
    ///
    /// # Errors
    ///
    /// [`CoordinationError`]; not where the engine is out of reach ([`NodeEvent::Reach`]).
    fn poll(&mut self, wait: Duration) -> Result<Vec<NodeEvent>, CoordinationError>;

    /// Says that the node now captures by the topology `revision`. The engine repeats it until
    /// the coordinator has it.
    ///
    /// # Errors
    ///
    /// [`CoordinationError`]; not where the engine is out of reach.
    fn acknowledge(&mut self, revision: Revision) -> Result<(), CoordinationError>;

    /// Control messages that were refused for a wrong key or seal: somebody may forge them. Engines
    /// that have no keys of their own count none.
    fn forged(&self) -> u64 {
        0
    }

    /// Takes the keys that the settings name now. Engines without keys of their own have nothing to
    /// do.
    ///
    /// # Errors
    ///
    /// A key can't be read. The old ones stay.
    fn reload(&mut self, _conf: &Conf) -> anyhow::Result<()> {
        Ok(())
    }

    /// Leaves the cluster: the coordinator need not wait for the node's heartbeats to end.
    ///
    /// # Errors
    ///
    /// [`CoordinationError`]; the node is gone all the same, once its heartbeats end.
    fn leave(&mut self) -> Result<(), CoordinationError>;
}

/// A coordination engine as a coordinator sees it.
pub trait CoordinatorSide {
    /// Waits at most `wait` for news and returns the engine's present view.
    ///
    /// # Errors
    ///
    /// [`CoordinationError`]; not where the engine is out of reach: then the view does not lead.
    fn poll(&mut self, wait: Duration) -> Result<&View, CoordinationError>;

    /// Writes a topology, if this coordinator leads and the cluster's topology still is the one of
    /// revision `replaces` (`None`: there is none yet). Returns the new topology's revision.
    ///
    /// # Errors
    ///
    /// [`WriteError`]. Nothing is written then, but for [`WriteError::Unknown`].
    fn write(
        &mut self,
        topology: &Topology,
        replaces: Option<Revision>,
    ) -> Result<Revision, WriteError>;

    /// What is wrong with the engine now, a sentence each, for the operator.
    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    /// Takes what the coordinator says of the cluster, a sentence each, for who asks for its
    /// status. Engines that have no place for it drop it.
    fn publish(&mut self, _notes: Vec<String>) {}

    /// Control messages that were refused for a wrong key or seal, as [`NodeSide::forged`].
    fn forged(&self) -> u64 {
        0
    }

    /// Takes the keys that the settings name now. Engines without keys of their own have nothing to
    /// do.
    ///
    /// # Errors
    ///
    /// A key can't be read. The old ones stay.
    fn reload(&mut self, _conf: &Conf) -> anyhow::Result<()> {
        Ok(())
    }

    /// Gives up the lead, so that a standby takes over at once.
    ///
    /// # Errors
    ///
    /// [`CoordinationError`]; a standby takes over all the same, once this coordinator is silent.
    fn resign(&mut self) -> Result<(), CoordinationError>;
}

/// A coordination engine as an operator's command sees it.
pub trait OperatorSide {
    /// How the cluster is.
    ///
    /// # Errors
    ///
    /// The engine is out of reach, or refuses.
    fn look(&mut self) -> anyhow::Result<Picture>;

    /// Makes a wish stand. It does so until another is made, whoever coordinates.
    ///
    /// # Errors
    ///
    /// The engine is out of reach, or refuses.
    fn wish(&mut self, wish: &Wish) -> anyhow::Result<()>;
}

/// How a cluster is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picture {
    /// What the coordinator sees.
    pub view: View,
    /// Which coordinator leads, as it calls itself; `None` if none does.
    pub leader: Option<String>,
    /// What an operator should know or do, a sentence each.
    pub notes: Vec<String>,
}

/// Why a coordination engine does not serve.
#[derive(Debug)]
#[non_exhaustive]
pub enum CoordinationError {
    /// A system call failed.
    System {
        /// What was tried: `opening the control socket on 10.0.0.1:7001`.
        doing: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// The engine refuses: a password, a certificate, a permission, a version.
    Refused {
        /// Which engine, by its endpoint.
        endpoint: String,
        /// What it said, and what to do.
        said: String,
    },
}

impl fmt::Display for CoordinationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { doing, error } => write!(f, "{doing}: {error}"),
            Self::Refused { endpoint, said } => write!(f, "{endpoint}: {said}"),
        }
    }
}

impl std::error::Error for CoordinationError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { error, .. } => Some(error),
            Self::Refused { .. } => None,
        }
    }
}

/// Why a topology was not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// Another coordinator leads.
    NotLeading,
    /// The cluster's topology is another by now. Poll, then plan anew.
    Changed,
    /// The engine was out of reach before it had the topology.
    OutOfReach,
    /// The engine was out of reach afterwards: it may have the topology. Poll, then plan anew.
    Unknown,
    /// The coordinator could not store the topology, so nobody hears of it. It is stored and sent
    /// later, or never.
    Unstored,
    /// The engine does not serve.
    Engine(CoordinationError),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLeading => f.write_str("another coordinator leads"),
            Self::Changed => f.write_str("the topology has changed in the meantime"),
            Self::OutOfReach => f.write_str("the coordination engine is out of reach"),
            Self::Unknown => f.write_str("the coordination engine did not say whether it wrote"),
            Self::Unstored => f.write_str("the coordinator's file can't be written"),
            Self::Engine(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WriteError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine(error) => Some(error),
            Self::NotLeading
            | Self::Changed
            | Self::OutOfReach
            | Self::Unknown
            | Self::Unstored => None,
        }
    }
}
