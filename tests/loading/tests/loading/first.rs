//! The first call of a process loads the system's library, even while other threads load libraries
//! or make their first calls.

use anyhow::{Result, ensure};
use fanpcap_loading::{compile, on_ours, run};
use fanpcap_testkit::Scratch;

use crate::ways::MARK;

#[test]
fn while_another_thread_loads_a_plugin_that_makes_the_same_call() -> Result<()> {
    ensure_ends("same")
}

#[test]
fn while_another_thread_loads_a_plugin_that_makes_another_call() -> Result<()> {
    ensure_ends("other")
}

#[test]
fn from_many_threads_at_once() -> Result<()> {
    let scratch = Scratch::new()?;
    let program = compile(&scratch, "together.c", &["-pthread"])?;
    for _ in 0..100 {
        let out = run(&scratch, &mut on_ours(&program)?)?.success()?;
        ensure!(out.trim_end() == "8 opened", "{out}");
    }
    Ok(())
}

fn ensure_ends(call: &str) -> Result<()> {
    let scratch = Scratch::new()?;
    let plugin = compile(&scratch, "plugin.c", &["-shared", "-fPIC"])?;
    let program = compile(&scratch, "first.c", &["-rdynamic", "-pthread"])?;
    let out = run(&scratch, on_ours(&program)?.arg(&plugin).arg(call))?.success()?;
    ensure!(out.trim_end().ends_with(MARK), "it ran on {out}");
    Ok(())
}
