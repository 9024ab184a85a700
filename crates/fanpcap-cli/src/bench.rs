//! `fanpcap bench`: measures this library against its peers.

use std::process::ExitCode;

use anyhow::Result;

pub(crate) use fanpcap_bench::Arguments;

use crate::library;

/// Does it.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    fanpcap_bench::run(arguments, library::directory)
}
