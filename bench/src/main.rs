//! The executable `fanpcap-bench`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    fanpcap_bench::main()
}
