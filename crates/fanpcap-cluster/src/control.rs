//! DiCAP's control protocol: the embedded engine, with no server but the coordinators themselves.
//!
//! The paper's **message** is a type, a count and attribute-value pairs (**AVPs**). An **envelope**
//! around the message says who sent it, and carries a code that only holders of the cluster's key
//! can make (HMAC-SHA256). A list of AVPs that is too long for a message travels in **parts**.

mod avp;
mod fields;
mod message;
mod parts;
mod envelope;
mod term;
mod body;
mod window;
mod endpoint;
mod outbox;
mod node;
mod coordinator;
mod operator;
pub mod stream;

pub use avp::Avp;
pub use body::{Body, Leader, Member, OperatorChange, State, Status, TooManyChanges};
pub use coordinator::{CoordinatorEnd, CoordinatorSettings, Refused};
pub use endpoint::{Endpoint, Incoming};
pub use envelope::{
    Cause, ClusterId, DATAGRAM, Envelope, KEY_BYTES, Key, Keys, Peer, Role, VERSION,
};
pub use fields::{BodyError, Fields};
pub use message::{Kind, Message};
pub use node::{NodeEnd, NodeSettings};
pub use operator::{OperatorEnd, Reply, Request};
pub use parts::{Assembly, divide};
pub use term::{COORDINATORS, Term};
