//! Signal handlers may read counters, as tcpdump's handler does with the system's library. They may
//! also break loops, and leave calls by siglongjmp().

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, on_wire};
use fanpcap_testkit::Program;

#[test]
#[ignore = "needs root: run by make test"]
fn a_plain_handles_counters_in_a_signal_handler() -> Result<()> {
    ensure_ends(&[])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_members_counters_in_a_signal_handler() -> Result<()> {
    ensure_ends(&["7", "hash"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_handler_that_interrupts_malloc_breaks_a_loop() -> Result<()> {
    ensure_interrupts(&["breakloop", "7"])?;
    ensure_interrupts(&["breakloop", "-"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_handler_that_interrupts_malloc_asks_for_counters() -> Result<()> {
    ensure_interrupts(&["stats", "7"])?;
    ensure_interrupts(&["stats", "-"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn no_handler_waits_for_a_thread_that_allocates() -> Result<()> {
    ensure_interrupts(&["stats", "7", "beside"])?;
    ensure_interrupts(&["breakloop", "7", "beside"])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_handler_may_leave_a_filters_setting() -> Result<()> {
    ensure_leaves("filter")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_handler_may_leave_a_steering_programs_replacement() -> Result<()> {
    ensure_leaves("replace")
}

fn ensure_leaves(call: &str) -> Result<()> {
    on_wire(1, |wire| {
        let program = Program::new(wire.compile("leaves")?, "")?.args([DEVICE, "7", call]);
        let ended = program.run(&wire.scratch)?;
        let well = ended.status.success() && ended.said.contains("left often");
        ensure!(well, "{}", ended.said);
        Ok(())
    })
}

fn ensure_ends(group: &[&str]) -> Result<()> {
    ensure_done("signals", group)
}

fn ensure_interrupts(how: &[&str]) -> Result<()> {
    ensure_done("interrupts", how)
}

fn ensure_done(program: &str, arguments: &[&str]) -> Result<()> {
    on_wire(1, |wire| {
        // With only one arena, a thread in malloc() blocks all other threads that call malloc(). So
        // a handler that needs memory hangs.
        let program = Program::new(wire.compile(program)?, "")?
            .arg(DEVICE)
            .set("MALLOC_ARENA_MAX", "1");
        let ended = program.args(arguments).run(&wire.scratch)?;
        ensure!(
            ended.status.success() && ended.said.contains("done"),
            "{}",
            ended.said
        );
        Ok(())
    })
}
