//! Tests properties of the parsers, the filter machines, the parser of a frame's headers, and the
//! parts of steering programs, with many generated inputs for each property.

use std::sync::Mutex;
use std::thread;

use anyhow::Result;

use crate::harness;
use crate::tally::Tally;

/// Inputs for each property in `make test-long`. Four properties have config files as inputs, so
/// the parser of config files gets a million inputs.
const CASES: usize = 250_000;

/// The test programs with the properties.
pub(crate) const PROPERTIES: &[(&str, &str)] = &[
    ("fanpcap-cluster", "control"),
    ("fanpcap-cluster", "control_bodies"),
    ("fanpcap-cluster", "records"),
    ("fanpcap-config", "settings"),
    ("fanpcap-etcd", "values"),
    ("fanpcap-reader", "filter"),
    ("fanpcap-steer", "language"),
    ("fanpcap-steer-testkit", "plain"),
    ("fanpcap-steer-testkit", "wire_properties"),
    ("fanpcap-steer-testkit", "parts"),
    ("fanpcap-steer-testkit", "classic"),
];

/// Number of test programs that run at a time. It is more than one, because the last property of a
/// program uses only one CPU.
const AT_A_TIME: usize = 2;

pub(crate) fn run() -> Result<Tally> {
    println!("  {CASES} generated inputs for each property");
    let left = Mutex::new(PROPERTIES.iter());
    let next = || left.lock().expect("no holder panics").next();
    let work = || -> Result<Tally> {
        let mut tally = Tally::default();
        while let Some((package, test)) = next() {
            let target = ["--profile", "fuzz", "-p", package, "--test", test];
            let cases = CASES.to_string();
            tally += harness::cargo_test(&target, &[("PROPTEST_CASES", &cases)])?;
        }
        Ok(tally)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        let mut sum = Tally::default();
        for worker in workers {
            sum += worker.join().expect("no test tier panics")?;
        }
        Ok(sum)
    })
}
