//! The interface of coordination engines to nodes, coordinators and operators' commands.
//!
//! If an engine is out of reach, its methods return no error, because nodes keep capturing as
//! before. A method fails only if waiting does not help: for example a wrong key, a missing
//! permission, or a mistake in the settings.

use std::time::Duration;

use fanpcap_cluster::control::OperatorChange;
use fanpcap_cluster::{
    Announcement, ClusterStatus, NodeEvent, Revision, Topology, View, WriteError,
};

use crate::conf::Conf;

/// A coordination engine as used by a node.
pub trait NodeSide {
    /// Sets the node's announcement. The engine joins the cluster with the first announcement.
    fn announce(&mut self, announcement: &Announcement);

    /// Waits at most `wait` for events and returns them, the oldest first. Keeps the node alive:
    /// call it at least once a second. An engine out of reach is no error ([`NodeEvent::Reach`]).
    fn poll(&mut self, wait: Duration) -> anyhow::Result<Vec<NodeEvent>>;

    /// Acknowledges that the node now captures by the topology `revision`. The engine repeats the
    /// acknowledgement until the coordinator has received it.
    fn acknowledge(&mut self, revision: Revision);

    /// How many control messages were refused for a wrong key or seal. Such messages may be forged.
    /// Always 0 for engines without keys of their own.
    fn forged(&self) -> u64 {
        0
    }

    /// Reads the keys again from the files that the settings name now. An engine without its own
    /// keys does nothing. If a key can't be read, the old keys stay.
    fn reload(&mut self, _conf: &Conf) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A coordination engine as used by a coordinator.
pub trait CoordinatorSide {
    /// Waits at most `wait` for changes and returns the engine's present view. If the engine is out
    /// of reach, `poll` returns no error, but a view in which this coordinator does not lead.
    fn poll(&mut self, wait: Duration) -> anyhow::Result<&View>;

    /// Writes a topology, if this coordinator leads and the cluster's topology still has revision
    /// `replaces` (`None`: there is no topology yet). Returns the new topology's revision. After an
    /// error other than [`WriteError::Unknown`], the topology was not written.
    fn write(
        &mut self,
        topology: &Topology,
        replaces: Option<Revision>,
    ) -> Result<Revision, WriteError>;

    /// The engine's present faults for the operator, one sentence each.
    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    /// Publishes the coordinator's notes on the cluster, one sentence each, for commands that show
    /// the status. Engines that can't store notes drop them.
    fn publish(&mut self, _notes: Vec<String>) {}

    /// The numbers of refused control messages by cause; empty for an engine without such messages.
    fn all_refused(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Reads the keys again from the files that the settings name now. An engine without its own
    /// keys does nothing. If a key can't be read, the old keys stay.
    fn reload(&mut self, _conf: &Conf) -> anyhow::Result<()> {
        Ok(())
    }

    /// Gives up the lead, so that a standby takes over at once and does not wait for a timeout.
    fn resign(&mut self);
}

/// A coordination engine as used by an operator's command.
pub trait OperatorSide {
    /// The cluster's status.
    fn look(&mut self) -> anyhow::Result<ClusterStatus>;

    /// Makes a change. The change lasts until the operator's next change, even under another
    /// coordinator.
    fn change(&mut self, change: &OperatorChange) -> anyhow::Result<()>;
}
