//! BPF ring buffers whose memory others write while it is read: what is read lies within them, and
//! all reading ends.
#![no_main]

#[path = "../../crates/fanpcap-ring/tests/program/mod.rs"]
mod program;

use libfuzzer_sys::fuzz_target;
use program::hostile;

fuzz_target!(|bytes: &[u8]| hostile::run(bytes));
