//! Any bytes as choices: a group's table to which others wrote, and the members' changes of the
//! table.
#![no_main]

use fanpcap_group::hostile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| hostile::run(bytes));
