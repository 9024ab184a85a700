//! A testbed on this machine, for benchmarks and tests. It has network namespaces, veth pairs and a
//! mirror port between them, and applications that capture there.
#![forbid(unsafe_code)]

pub mod await_for;
pub mod scratch;
pub mod flow;
pub mod capture;
pub mod library;
pub mod member;
pub mod veth;
pub mod netns;
pub mod mirror;

pub use await_for::await_for;
pub use capture::Capture;
pub use flow::{FlowKey, Transport};
pub use member::{Member, Program};
pub use mirror::Mirror;
pub use scratch::Scratch;
pub use veth::Veth;
