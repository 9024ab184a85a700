//! How soon a steering program works: from its text to the kernel.

use anyhow::Result;

use crate::bench::Bench;
use crate::compiler;
use crate::figure::{Figure, Sample};

/// Runs the compiler's process once.
pub(super) fn run(bench: &Bench) -> Result<Sample> {
    let compiled = compiler::measured(bench)?;
    Ok(Sample::from([
        (Figure::CompileUs, compiled.compile / 1e3),
        (Figure::LoadUs, compiled.load / 1e3),
        (Figure::CompileAndLoadMs, compiled.both / 1e6),
        (Figure::FirstProgramMs, compiled.first / 1e6),
    ]))
}
