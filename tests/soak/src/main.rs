//! The command `fanpcap-soak [MINUTES]`, which root runs: the library's soak test. Prints a line
//! each minute, and PASS or FAIL at the end.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    reason = "a command's output is for the terminal"
)]

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};

const MINUTE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    match minutes()
        .and_then(|minutes| fanpcap_soak::run(minutes * MINUTE, MINUTE, &|line| println!("{line}")))
    {
        Ok(()) => {
            println!("PASS");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAIL: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn minutes() -> Result<u32> {
    let argument = env::args().nth(1).unwrap_or_else(|| "30".to_owned());
    let minutes = argument.parse().ok().filter(|&minutes| minutes > 0);
    minutes.with_context(|| format!("usage: fanpcap-soak [MINUTES], not {argument}"))
}
