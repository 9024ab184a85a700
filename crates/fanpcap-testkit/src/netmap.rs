//! A stand-in for netmap's kernel module, for the program `fanpcap poller`.

use crate::stand_in::compile;
use anyhow::Result;
use fanpcap_testbed::Scratch;
use std::path::PathBuf;

/// Compiles the stand-in. Returns its path, for `LD_PRELOAD`.
///
/// # Errors
/// The compiler's messages; warnings are errors.
pub fn stand_in(scratch: &Scratch) -> Result<PathBuf> {
    compile(scratch, "netmap.c", "netmap.so")
}
