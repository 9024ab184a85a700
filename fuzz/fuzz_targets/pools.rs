//! Pools whose memory other processes write while it is read. All reads lie within the blocks, and
//! all reading ends.
#![no_main]

#[path = "../../crates/fanpcap-ring/tests/pool/mod.rs"]
mod pool;

use libfuzzer_sys::fuzz_target;
use pool::hostile;

fuzz_target!(|bytes: &[u8]| hostile::run(bytes));
