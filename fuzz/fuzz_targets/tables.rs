//! The bytes choose what happens to a group's table: other processes write to the table, and the
//! members change it.
#![no_main]

use fanpcap_group::hostile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hostile::run(bytes));
