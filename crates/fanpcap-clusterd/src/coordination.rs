//! The interface of coordination engines to nodes, coordinators and operators' commands.
//!
//! An engine that is out of reach is no error: nodes are fail-static and go on as before. So a call
//! fails only if waiting does not help: a wrong key, a missing permission, a mistake in settings.

use std::time::Duration;

use fanpcap_cluster::control::OperatorChange;
use fanpcap_cluster::{
    Announcement, ClusterStatus, NodeEvent, Revision, Topology, View, WriteError,
};

use crate::conf::Conf;

/// A coordination engine as a node sees it.
pub trait NodeSide {
    /// Sets the node's announcement. The engine joins the cluster with the first announcement.
    fn announce(&mut self, announcement: &Announcement);

    /// Waits at most `wait` for events and returns them, the oldest first. Also keeps the node
    /// alive in the engine: call it at least once a second.
    ///
    /// # Errors
    ///
    /// The engine or the system refuses. An engine that is out of reach is no error
    /// ([`NodeEvent::Reach`]).
    fn poll(&mut self, wait: Duration) -> anyhow::Result<Vec<NodeEvent>>;

    /// Acknowledges that the node now captures by the topology `revision`. The engine repeats it
    /// until the coordinator has it.
    fn acknowledge(&mut self, revision: Revision);

    /// Control messages that were refused for a wrong key or seal, and may be forged. Engines that
    /// have no keys of their own count none.
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
}

/// A coordination engine as a coordinator sees it.
pub trait CoordinatorSide {
    /// Waits at most `wait` for changes and returns the engine's present view.
    ///
    /// # Errors
    ///
    /// The engine refuses, or the system does; where it is out of reach, the view does not lead.
    fn poll(&mut self, wait: Duration) -> anyhow::Result<&View>;

    /// Writes a topology, if this coordinator leads and the cluster's topology still has revision
    /// `replaces` (`None`: there is no topology yet). Returns the new topology's revision.
    ///
    /// # Errors
    ///
    /// [`WriteError`]. Then nothing was written, except perhaps with [`WriteError::Unknown`].
    fn write(
        &mut self,
        topology: &Topology,
        replaces: Option<Revision>,
    ) -> Result<Revision, WriteError>;

    /// The engine's present faults, a sentence each, for the operator.
    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    /// Takes the coordinator's notes on the cluster, a sentence each, for commands that ask for the
    /// status. Engines without a place for notes drop them.
    fn publish(&mut self, _notes: Vec<String>) {}

    /// Control messages that were refused, by the cause's name. Engines without control messages
    /// have none.
    fn all_refused(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
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

    /// Gives up the lead, so that a standby takes over at once, and does not wait for this
    /// coordinator's silence.
    fn resign(&mut self);
}

/// A coordination engine as an operator's command sees it.
pub trait OperatorSide {
    /// The cluster's status.
    ///
    /// # Errors
    ///
    /// The engine is out of reach, or refuses.
    fn look(&mut self) -> anyhow::Result<ClusterStatus>;

    /// Makes a change. It holds until the operator makes another one, whichever coordinator is
    /// active.
    ///
    /// # Errors
    ///
    /// The engine is out of reach, or refuses.
    fn change(&mut self, change: &OperatorChange) -> anyhow::Result<()>;
}
