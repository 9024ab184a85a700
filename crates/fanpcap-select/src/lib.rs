//! Which packets a node of a capture cluster takes.
//!
//! All nodes of a cluster see all packets of a mirrored link. Each node computes a **key** of a
//! packet, and from it a bucket; a table says which node owns the bucket. So each packet has one
//! owner, and no node asks another. DiCAP (the paper that this follows) does this in a kernel
//! module; here it is a BPF program in the driver's receive path.
#![forbid(unsafe_code)]

mod selection;

pub use selection::{Key, Selection};
