//! Child processes of a capturing process do not hang in its locks, and do not stay in its groups.

use anyhow::{Result, ensure};
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire, on_wire};
use fanpcap_testkit::Program;

#[test]
#[ignore = "needs root: run by make test"]
fn a_child_closes_handles_whatever_other_threads_were_doing() -> Result<()> {
    on_wire(1, |wire| {
        ensure_says(wire, "forks", &[DEVICE, "7"], "all children ended")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_program_that_was_started_stays_in_no_group() -> Result<()> {
    on_wire(1, |wire| {
        let arguments = [DEVICE, "7", FAR_DEVICE];
        let alone = "received 100 of 100, members 1\n";
        ensure_says(wire, "outlived", &arguments, alone)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_newcomer_waits_for_the_socket_of_the_last_member_that_was_closed() -> Result<()> {
    on_wire(1, |wire| {
        ensure_says(wire, "lingers", &[DEVICE, "7"], "opened, members 1\n")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_programs_own_fork_handler_closes_handles() -> Result<()> {
    on_wire(1, |wire| {
        for registered in ["first", "last"] {
            let arguments = [DEVICE, "7", registered];
            ensure_says(wire, "atfork", &arguments, "status 0, members 2\n")?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_child_leaves_its_parents_counters_alone() -> Result<()> {
    on_wire(1, |wire| {
        let whole = "child 0, ps_recv 200, received 200 of 200\n";
        ensure_says(wire, "counted", &[DEVICE, "7", FAR_DEVICE], whole)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn children_that_read_one_member_each_count_that_one_only() -> Result<()> {
    on_wire(1, |wire| {
        let each = "child 0: received 50, ps_recv 50\nchild 1: received 50, ps_recv 50\n";
        ensure_says(wire, "prefork", &[DEVICE, "7", FAR_DEVICE], each)
    })
}

fn ensure_says(wire: &Wire, name: &str, arguments: &[&str], expected: &str) -> Result<()> {
    for driver in ["tpacket", "xdp"] {
        let program = Program::new(wire.compile(name)?, "")?.args(arguments);
        let ended = program.set("PCAP_DRIVER", driver).run(&wire.scratch)?;
        let right = ended.status.success() && ended.said.contains(expected);
        ensure!(right, "{driver}: not {expected:?} but:\n{}", ended.said);
    }
    Ok(())
}
