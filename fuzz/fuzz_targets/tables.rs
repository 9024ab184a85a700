//! Any bytes as choices: a group's table that others wrote to, and the members' changes of it.
#![no_main]

use fanpcap_group::hostile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hostile::run(bytes));
