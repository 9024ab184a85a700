//! Each return value of pcap_dispatch(3PCAP), on a ring in ordinary memory that no kernel fills.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "lengths are below 4096, and a test may panic"
)]

#[path = "../../../fanpcap-ring/tests/kernel/mod.rs"]
mod kernel;
mod fake;
mod ends;
mod packets;
mod several;
mod group_tasks;
mod inherited;
mod borrowed;
#[path = "../../../fanpcap-ring/tests/program/mod.rs"]
mod written;
mod program;
mod records;
