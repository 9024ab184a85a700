//! Which packets a node of a capture cluster takes.
//!
//! All nodes of a cluster see all packets of a mirrored link. Each node computes a **key** of a
//! packet, and from the key a bucket. A table contains the owner of each bucket. So each packet has
//! one owner, and the nodes need not ask each other. DiCAP (the paper that this crate follows)
//! selects in a kernel module. Here a BPF program selects in the driver's receive path.
//!
//! A node's own part of the table is its [`Claims`]: one byte for each bucket. [`native`] evaluates
//! the selection in user space, for tests and for checking a node.
#![forbid(unsafe_code)]

mod selection;
mod claims;
mod control;
pub mod bob;
mod digest;
mod keys;
pub mod in_line;
pub mod layout;
pub mod record;
mod program;
pub mod native;

pub use claims::{Claim, Claims, in_turn};
pub use control::Control;
pub use digest::{PAYLOAD, digest};
pub use fanpcap_bpf::Classic;
pub use fanpcap_steer::ir::Filter;
pub use keys::{Keys, Number};
pub use program::{Action, Program};
pub use selection::{Key, Selection};
