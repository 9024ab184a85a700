//! The embedded engine: the control protocol over UDP, without another server.

mod access;
mod sockets;
mod store;
mod node;
mod coordinator;
mod operator;

pub use coordinator::EmbeddedCoordinator;
pub use node::EmbeddedNode;
pub use operator::EmbeddedOperator;
