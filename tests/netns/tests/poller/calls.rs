//! The library's calls on a handle whose packets come from a poller.

use anyhow::{Context, Result, ensure};
use fanpcap_netns::{Wire, on_wire};
use fanpcap_testkit::Program;

use crate::scene::Poller;

/// Checks the output of `c/on_xdp.c` for each of these pairs: its argument, and how the output
/// ends.
fn ensure_said(cases: &[(&str, &str)]) -> Result<()> {
    on_wire(1, |wire| {
        let _poller = Poller::start("packet")?;
        for (what, expected) in cases {
            let said = said(wire, what).with_context(|| (*what).to_owned())?;
            ensure!(said.trim_end().ends_with(expected), "{what}: {said}");
        }
        Ok(())
    })
}

fn said(wire: &Wire, what: &str) -> Result<String> {
    let program = Program::new(wire.compile("on_xdp")?, "")?;
    let ended = program.arg(what).set("PCAP_DRIVER", "packet");
    let ended = ended.run(&wire.scratch)?;
    ensure!(ended.status.success(), "{}\n{}", ended.status, ended.said);
    Ok(ended.said)
}

#[test]
#[ignore = "needs root: run by make test"]
fn reads_wait_as_the_handle_says() -> Result<()> {
    ensure_said(&[
        ("polled", "20 packets, late no, spins no"),
        ("nonblock", "0 then 20 packets"),
        ("waits", "1, 0 before, late no"),
        ("immediate", "50 packets, late no"),
        ("broken", "-2 after 20 packets"),
    ])
}

#[test]
#[ignore = "needs root: run by make test"]
fn frames_are_sent_with_their_own_protocol() -> Result<()> {
    ensure_said(&[("inject", "2 of 2 sent, then send: Message too long")])
}

#[test]
#[ignore = "needs root: run by make test"]
fn filters_hold_from_the_next_packet_on_also_without_privileges() -> Result<()> {
    // The poller runs no filter: packets that come before a new filter, and are read after it, are
    // chosen by the new filter alone.
    ensure_said(&[
        ("filtered", "20, 40, 6 packets"),
        ("outgoing", "20, 20 packets, 40 received, 0 dropped"),
    ])
}

#[test]
#[ignore = "needs root: run by make test"]
fn counters_add_up() -> Result<()> {
    // Before they are read, packets that the filter will reject are counted, too.
    ensure_said(&[(
        "counted",
        " received before, 5000 read, 5000 received, 0 dropped",
    )])
}

#[test]
#[ignore = "needs root: run by make test"]
fn packets_have_their_time_length_and_direction() -> Result<()> {
    let expected = "5000 packets, 0 late, 0 early, 0 backwards, 0 wrong";
    ensure_said(&[
        ("stamped", expected),
        ("cut", expected),
        ("directed", "21, 20, 1 packets"),
    ])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_daemon_reads_on_when_its_parent_has_ended() -> Result<()> {
    ensure_said(&[("forked", "5000 packets")])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_child_that_closes_its_copy_does_not_end_its_parents_membership() -> Result<()> {
    ensure_said(&[("childs_close", "40 packets, then 5000")])
}
