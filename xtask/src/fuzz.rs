//! Short fuzzing: a million generated inputs for the settings' parser.

use anyhow::{Result, ensure};

use crate::tally::Tally;
use crate::{tier, tree};

const INPUTS: usize = 1_000_000;
const TARGET: [&str; 5] = ["--release", "-p", "fanpcap", "--test", "settings"];

/// Divides the inputs evenly over the properties of the target.
pub(crate) fn run() -> Result<Tally> {
    let properties = properties()?;
    ensure!(properties > 0, "the settings' properties are gone");
    let cases = INPUTS.div_ceil(properties);
    println!("  {cases} generated inputs for each of {properties} properties");
    tier::cargo_test(&TARGET, &[], &[("PROPTEST_CASES", &cases.to_string())])
}

fn properties() -> Result<usize> {
    let mut list = tree::cargo(&["test", "--quiet"])?;
    list.args(TARGET).args(["--", "--list"]);
    Ok(tree::output(&mut list)?
        .lines()
        .filter(|line| line.ends_with(": test"))
        .count())
}
