//! `fanpcap enable`, `fanpcap disable`: the library for every program of this machine, or no longer.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

/// Lets every program of this machine load this library
#[derive(Args, Debug)]
pub(crate) struct Enable {}

/// Takes back what `enable` has done
#[derive(Args, Debug)]
pub(crate) struct Disable {}

/// Does it.
pub(crate) fn enable(_arguments: &Enable) -> Result<ExitCode> {
    bail!("not built yet")
}

/// Takes it back.
pub(crate) fn disable(_arguments: &Disable) -> Result<ExitCode> {
    bail!("not built yet")
}
