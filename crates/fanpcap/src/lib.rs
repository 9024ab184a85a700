//! libpcap with fan-out, in safe Rust: settings, what they ask of a handle, and groups.
#![forbid(unsafe_code)]

pub mod closing;
pub mod device;
pub mod fanout;
pub mod groups;
pub mod join;
pub mod member;
pub mod mode;
pub mod page;
pub mod record;
pub mod rejecting;
pub mod replace;
pub mod report;
pub mod request;
pub mod root;
pub mod settings;
pub mod source;
pub mod steered;
pub mod steering;
