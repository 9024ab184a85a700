//! The executable `fanpcap-cluster`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    fanpcap_clusterd::main()
}
