//! What fanpcap's programs have in common towards their user: standard streams, the completion of
//! command lines, metrics for Prometheus.
#![forbid(unsafe_code)]

pub mod streams;
pub mod complete;
pub mod exposition;
pub mod textfile;
pub mod server;
