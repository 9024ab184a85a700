//! The user interface that fanpcap's programs share: standard streams, completion, metrics.
#![forbid(unsafe_code)]

pub mod streams;
pub mod table;
mod seconds;
pub mod complete;
pub mod exposition;
pub mod textfile;
pub mod server;

pub use seconds::seconds;
