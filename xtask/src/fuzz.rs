//! Short fuzzing: generated inputs for the settings' parsers.

use anyhow::Result;

use crate::tally::Tally;
use crate::tier;

/// Inputs for each property. Four of them are about any config file: a million for that parser alone.
const CASES: usize = 250_000;

pub(crate) fn run() -> Result<Tally> {
    println!("  {CASES} generated inputs for each property");
    let target = ["--release", "-p", "fanpcap", "--test", "settings"];
    tier::cargo_test(&target, &[], &[("PROPTEST_CASES", &CASES.to_string())])
}
