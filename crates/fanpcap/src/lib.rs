//! libpcap with fan-out, in safe Rust: settings, what they ask of a handle, and groups.
#![forbid(unsafe_code)]

pub mod device;
pub mod report;
pub mod mode;
pub mod root;
pub mod source;
pub mod fanout;
pub mod steering;
pub mod record;
pub mod page;
pub mod closing;
pub mod groups;
pub mod rejecting;
pub mod steered;
pub mod member;
pub mod settings;
pub mod request;
pub mod join;
pub mod replace;
