//! The library's calls on a handle on the XDP engine.

use anyhow::Result;
use fanpcap_netns::calls::{self, Case};
use fanpcap_netns::on_wire;
use fanpcap_netns::remains::leaves_nothing_soon;

fn ensure_said(cases: &[Case]) -> Result<()> {
    on_wire(1, |wire| {
        let run = |case| leaves_nothing_soon(|| calls::ensure_said(wire, "xdp", case));
        cases.iter().try_for_each(|case| run(*case))
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn reads_wait_as_the_handle_says() -> Result<()> {
    ensure_said(calls::WAITING)
}

#[test]
#[ignore = "needs root: run by make test"]
fn frames_are_sent_with_their_own_protocol() -> Result<()> {
    ensure_said(calls::SENDING)
}

#[test]
#[ignore = "needs root: run by make test"]
fn filters_hold_from_the_next_packet_on_also_without_privileges() -> Result<()> {
    ensure_said(&[("filtered", "20, 0, 6 packets")])
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_a_filter_rejects_of_sent_packets_is_not_counted_also_without_privileges() -> Result<()> {
    ensure_said(&[calls::OUTGOING])
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
    ensure_said(calls::STAMPED)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_daemon_reads_on_when_its_parent_has_ended() -> Result<()> {
    ensure_said(calls::FORKED)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_parent_reads_on_when_a_child_has_read_its_handle_too() -> Result<()> {
    ensure_said(&[("both", "all read, then 5000 packets")])
}

#[test]
#[ignore = "needs root: run by make test"]
fn directions_are_told_apart() -> Result<()> {
    ensure_said(&[calls::DIRECTED])
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
