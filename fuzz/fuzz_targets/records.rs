//! BPF ring buffers whose memory other processes write while it is read. All reads lie within the
//! buffer, and all reading ends.
#![no_main]

#[path = "../../crates/fanpcap-ring/tests/program/mod.rs"]
mod program;

use libfuzzer_sys::fuzz_target;
use program::hostile;

fuzz_target!(|bytes: &[u8]| hostile::run(bytes));
