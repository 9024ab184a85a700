//! Short fuzzing: generated inputs for the parsers, the filter machines, the walk through a frame,
//! and the parts of steering programs.

use anyhow::Result;

use crate::tally::Tally;
use crate::tier;

/// Inputs for each property. Four properties are about any config file: a million inputs for that
/// parser.
const CASES: usize = 250_000;

/// Packages and tests with the properties.
const PROPERTIES: [(&str, &str); 10] = [
    ("fanpcap-cluster", "control"),
    ("fanpcap-cluster", "control_bodies"),
    ("fanpcap-cluster", "records"),
    ("fanpcap-config", "settings"),
    ("fanpcap-etcd", "values"),
    ("fanpcap-reader", "filter"),
    ("fanpcap-steer", "language"),
    ("fanpcap-steer-testkit", "wire_properties"),
    ("fanpcap-steer-testkit", "parts"),
    ("fanpcap-steer-testkit", "classic"),
];

pub(crate) fn run() -> Result<Tally> {
    println!("  {CASES} generated inputs for each property");
    let cases = CASES.to_string();
    let mut tally = Tally::default();
    for (package, test) in PROPERTIES {
        let target = ["--profile", "fuzz", "-p", package, "--test", test];
        tally += tier::cargo_test(&target, &[], &[("PROPTEST_CASES", &cases)])?;
    }
    Ok(tally)
}
