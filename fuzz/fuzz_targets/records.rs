//! Reads BPF ring buffers while other processes write to their memory. All reads lie within the
//! buffer, and each read ends.
#![no_main]

#[path = "../../crates/fanpcap-ring/tests/program/mod.rs"]
mod program;

use libfuzzer_sys::fuzz_target;
use program::hostile;

fuzz_target!(|bytes: &[u8]| hostile::run(bytes));
