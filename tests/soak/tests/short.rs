//! A soak of some seconds, which finds errors that occur at once.

use std::time::Duration;

use anyhow::Result;

const SECONDS: u64 = 20;

#[test]
#[ignore = "needs root: run by make test"]
fn everything_at_once_for_some_seconds() -> Result<()> {
    let tell = |line: &str| println!("{line}");
    fanpcap_soak::run(
        Duration::from_secs(SECONDS),
        Duration::from_secs(SECONDS),
        &tell,
    )
}
