//! What fanpcap's programs share for their users: standard streams, the completion of command
//! lines, metrics for Prometheus.
#![forbid(unsafe_code)]

pub mod streams;
pub mod table;
mod seconds;
pub mod complete;
pub mod exposition;
pub mod textfile;
pub mod server;

pub use seconds::seconds;
