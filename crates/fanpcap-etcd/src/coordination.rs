//! A capture cluster's coordination on etcd.
//!
//! | key below `/fanpcap/CLUSTER/` | who writes | what |
//! | --- | --- | --- |
//! | `nodes/ID` | the node, under its lease | the node's announcement |
//! | `nodes/ID/BOOT` | a machine whose id another one has | its announcement |
//! | `ack/ID` | the node, under its lease | the revision that it captures by |
//! | `coord/LEASE` | coordinators, under their leases | an election as etcd's clients hold it |
//! | `topology` | the coordinator that leads | the topology; its `mod_revision` is its number |
//! | `desired` | the operator | nodes to drain, and weights |
//!
//! A transaction writes a topology only if two revisions are as the coordinator expects: the create
//! revision of the leader's key, and the mod revision of the topology. So neither a
//! coordinator that has lost its lease nor a late call can replace a newer topology.

mod names;
mod record;
mod view;
mod registration;
mod node;
mod coordinator;

pub use coordinator::{CoordinatorLink, look};
pub use names::Names;
pub use node::NodeLink;
pub use record::Desired;
pub use view::{CopyOfKeys, notes, view};
