//! libpcap with fan-out, in safe Rust: what is asked of a handle, and groups.
#![forbid(unsafe_code)]

pub mod root;
pub mod record;
pub mod page;
pub mod closing;
pub mod groups;
pub mod rejecting;
pub mod steered;
pub mod member;
pub mod request;
pub mod join;
pub mod replace;
