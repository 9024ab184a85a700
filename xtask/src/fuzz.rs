//! Short fuzzing: generated inputs for the settings' parsers and the filter machine.

use anyhow::Result;

use crate::tally::Tally;
use crate::tier;

/// Inputs for each property. Four of them are about any config file: a million for that parser alone.
const CASES: usize = 250_000;

pub(crate) fn run() -> Result<Tally> {
    println!("  {CASES} generated inputs for each property");
    let cases = CASES.to_string();
    let mut tally = Tally::default();
    for (package, test) in [("fanpcap", "settings"), ("fanpcap-tpacket", "filter")] {
        let target = ["--release", "-p", package, "--test", test];
        tally += tier::cargo_test(&target, &[], &[("PROPTEST_CASES", &cases)])?;
    }
    Ok(tally)
}
