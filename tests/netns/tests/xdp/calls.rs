//! The library's calls on a handle on the XDP engine.

use anyhow::{Context, Result, ensure};
use fanpcap_netns::remains::leaves_nothing_soon;
use fanpcap_netns::{Wire, on_wire};
use fanpcap_testkit::Program;

/// Checks the output of `c/on_xdp.c` for each of these pairs: its argument, and the expected
/// output.
fn ensure_said(cases: &[(&str, &str)]) -> Result<()> {
    on_wire(1, |wire| {
        for (what, expected) in cases {
            let said = leaves_nothing_soon(|| said(wire, what));
            let said = said.with_context(|| (*what).to_owned())?;
            ensure!(said.trim_end() == *expected, "{what}: {said}");
        }
        Ok(())
    })
}

fn said(wire: &Wire, what: &str) -> Result<String> {
    let program = Program::new(wire.compile("on_xdp")?, "")?;
    let ended = program.arg(what).set("PCAP_DRIVER", "xdp");
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
    ensure_said(&[("filtered", "20, 0, 6 packets")])
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_a_filter_rejects_of_sent_packets_is_not_counted_also_without_privileges() -> Result<()> {
    ensure_said(&[("outgoing", "20, 20 packets, 40 received, 0 dropped")])
}

#[test]
#[ignore = "needs root: run by make test"]
fn counters_add_up() -> Result<()> {
    let expected = "5000 received before, 5000 read, 5000 received, 0 dropped";
    ensure_said(&[("counted", expected), ("full", "lost some, sum right")])
}

#[test]
#[ignore = "needs root: run by make test"]
fn packets_have_their_time_and_length() -> Result<()> {
    let expected = "5000 packets, 0 late, 0 early, 0 backwards, 0 wrong";
    ensure_said(&[("stamped", expected), ("cut", expected)])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_daemon_reads_on_when_its_parent_has_ended() -> Result<()> {
    ensure_said(&[("forked", "5000 packets")])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_parent_reads_on_when_a_child_has_read_its_handle_too() -> Result<()> {
    ensure_said(&[("both", "all read, then 5000 packets")])
}

#[test]
#[ignore = "needs root: run by make test"]
fn directions_are_told_apart() -> Result<()> {
    ensure_said(&[("directed", "21, 20, 1 packets")])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_that_goes_down_is_told_and_comes_back() -> Result<()> {
    ensure_said(&[("downed", "0, 20 packets")])?;
    // Run the case several times, because the kernel may detach the BPF program of a removed device
    // at any moment of a read.
    for _ in 0..6 {
        ensure_said(&[("gone", "20 packets, then The interface disappeared")])?;
    }
    Ok(())
}
