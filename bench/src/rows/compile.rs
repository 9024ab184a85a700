//! How soon a steering program works: from its text to the kernel.

use anyhow::Result;

use crate::bench::Bench;
use crate::compiler;
use crate::figure::{Figure, Sample};
use crate::measure::{Column, Measure};
use crate::refusal::Refusal;
use crate::row::{Goal, Must, Row};

/// The compiler's process, once.
#[derive(Debug)]
struct Lines;

const COLUMNS: [Column; 1] = [Column::new("ours", "fanpcap")];

impl Measure for Lines {
    fn name(&self) -> String {
        "a program of 50 lines".to_owned()
    }

    fn columns(&self) -> &[Column] {
        &COLUMNS
    }

    fn run(&self, bench: &Bench, _column: &Column) -> Result<Result<Sample, Refusal>> {
        let compiled = compiler::measured(bench)?;
        Ok(Ok(Sample::from([
            (Figure::CompileUs, compiled.compile / 1e3),
            (Figure::LoadUs, compiled.load / 1e3),
            (Figure::CompileAndLoadMs, compiled.both / 1e6),
            (Figure::FirstProgramMs, compiled.first / 1e6),
        ])))
    }
}

static LINES: Lines = Lines;

pub(super) const COMPILE: Row = Row {
    name: "compile",
    what: "a steering program of 50 lines: text to eBPF, and that into the kernel",
    goals: &[
        Goal::ratio(
            "compile and load, ms",
            &LINES,
            Figure::CompileAndLoadMs,
            Must::AtMost(2.0),
        )
        .alone("ours"),
        Goal::ratio(
            "the first in a process, ms",
            &LINES,
            Figure::FirstProgramMs,
            Must::Free,
        )
        .alone("ours"),
    ],
    published: &[],
};
