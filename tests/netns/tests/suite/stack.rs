//! Threads with a small stack open handles. pcap_fanout(3pcap) documents the smallest stack with
//! which this must work.

use std::iter;

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_testkit::Program;

/// Number of nested predicates. It is nearly the maximum (fanpcap-steer, `DEPTH_MAX`).
const DEEPEST: usize = 60;

#[test]
#[ignore = "needs root: run by make test"]
fn a_thread_joins_a_group_in_64_kib() -> Result<()> {
    ensure_fits(64, "hash+defrag")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_thread_brings_a_deep_steering_program_in_512_kib() -> Result<()> {
    let define = |number: usize| format!("p{number} = not p{}", number - 1);
    let chain = iter::once("p0 = is_tcp".to_owned()).chain((1..=DEEPEST).map(define));
    let chain = chain.collect::<Vec<_>>().join("\n");
    ensure_fits(
        512,
        &format!("{chain}\nmain = when p{DEEPEST} tcp >-> steer_flow"),
    )
}

fn ensure_fits(kib: usize, mode: &str) -> Result<()> {
    on_wire(1, |wire| {
        let program = Program::new(wire.compile("stack")?, "")?.arg(DEVICE);
        let ended = program.args([&kib.to_string(), mode]).run(&wire.scratch)?;
        let fits = ended.status.success() && ended.said.contains("done");
        ensure!(fits, "{kib} KiB: {:?} {}", ended.status, ended.said);
        Ok(())
    })
}
