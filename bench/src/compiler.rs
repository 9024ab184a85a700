//! The compiler's process, and its report. The process repeatedly compiles a steering program and
//! loads the result into the kernel.

use std::env;
use std::hint::black_box;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use fanpcap_linux::bpf::Loaded;
use fanpcap_steer::Compiled as Steering;
use fanpcap_steer::ir::Tree;
use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::generator;
use crate::priority;
use crate::spread::Spread;

/// The steering program: 50 lines with the usual constructs.
pub(crate) const SOURCE: &str = include_str!("../programs/probe.pfq");

/// The arguments of the hidden subcommand `compiler`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Compiling {
    /// The CPU to stay on
    #[arg(long)]
    cpu: usize,
    /// How often the process compiles and loads the steering program
    #[arg(long, default_value_t = TIMES)]
    times: u32,
}

/// Times in nanoseconds: medians of all repetitions, and the time of the first.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Compiled {
    /// Time from the text to the BPF programs.
    pub(crate) compile: f64,
    /// Time from the BPF programs until the kernel has loaded them.
    pub(crate) load: f64,
    /// The sum of `compile` and `load`.
    pub(crate) both: f64,
    /// The time of the process's first compilation and load, with cold caches.
    pub(crate) first: f64,
}

const TIMES: u32 = 101;

/// Runs the process on the reader's core.
pub(crate) fn measured(bench: &Bench) -> Result<Compiled> {
    let own = env::current_exe().context("this program's file")?;
    let cpu = bench.reader_cpu.to_string();
    let program = priority::program(bench.library(), own, "", None);
    let compiler = program.args(["compiler", "--cpu", &cpu]);
    generator::told(compiler.start(&bench.scratch)?, "the compiler")
}

/// The process's main function.
pub(crate) fn compile(compiling: &Compiling) -> Result<Compiled> {
    let cpu = compiling.cpu;
    fanpcap_linux::process::cpu::pin(cpu).with_context(|| format!("staying on CPU {cpu}"))?;
    let times = (0..compiling.times)
        .map(|_| once())
        .collect::<Result<Vec<_>>>()?;
    let first = times.first().context("no time at all")?;
    let median = |time: fn(&Times) -> u128| {
        let spread = Spread::of(times.iter().map(|it| time(it) as f64));
        spread.map_or(f64::NAN, |spread| spread.median)
    };
    Ok(Compiled {
        compile: median(|times| times.compile),
        load: median(|times| times.load),
        both: median(|times| times.compile + times.load),
        first: (first.compile + first.load) as f64,
    })
}

/// Times of one compilation in nanoseconds.
struct Times {
    compile: u128,
    load: u128,
}

/// Compiles the steering program, and loads the group's BPF program and a member's filter, as the
/// first member of a group does.
fn once() -> Result<Times> {
    let begin = Instant::now();
    let steering = Steering::of(&tree(black_box(SOURCE))?)?;
    let filter = steering.filter();
    let filter = filter.context("a program that drops has a filter")?;
    let compiled = Instant::now();
    let fanout = Loaded::load_apart(steering.fanout(), "bench_fanout")?;
    let filter = Loaded::load_apart(filter, "bench_filter")?;
    let loaded = Instant::now();
    drop((fanout, filter));
    Ok(Times {
        compile: (compiled - begin).as_nanos(),
        load: (loaded - compiled).as_nanos(),
    })
}

fn tree(source: &str) -> Result<Tree> {
    let no_pcap = |_: &str| Err("no pcap expressions here".to_owned());
    fanpcap_steer::tree(source, &no_pcap).map_err(|error| anyhow!("{}", error.render(source)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_fifty_lines() {
        let lines = SOURCE.lines().filter(|line| !line.trim().is_empty());
        assert_eq!(lines.count(), 50);
        tree(SOURCE).unwrap();
    }

    #[test]
    #[ignore = "needs root: eBPF"]
    fn it_takes_time() {
        let compiled = compile(&Compiling { cpu: 0, times: 3 }).unwrap();
        assert!(
            compiled.compile > 0.0 && compiled.load > 0.0,
            "{compiled:?}"
        );
        assert!(compiled.both >= compiled.load, "{compiled:?}");
    }
}
