//! The return values of pcap_dispatch(3PCAP). The tests use a ring in ordinary memory, which the
//! test fills instead of the kernel.
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
#[path = "../../../fanpcap-ring/tests/pool/mod.rs"]
mod written;
mod program;
mod records;
mod inherited_records;
mod rests;
