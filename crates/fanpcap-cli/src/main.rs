//! The command `fanpcap`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    fanpcap_cli::main()
}
