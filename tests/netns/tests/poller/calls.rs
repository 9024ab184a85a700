//! The library's calls on a handle whose packets come from a poller.

use anyhow::{Result, ensure};
use fanpcap_netns::calls::{self, Case};
use fanpcap_netns::on_wire;
use fanpcap_testkit::Program;

use crate::scene::Poller;

fn ensure_said(cases: &[Case]) -> Result<()> {
    on_wire(1, |wire| {
        let _poller = Poller::start("packet")?;
        let mut cases = cases.iter();
        cases.try_for_each(|case| calls::ensure_said(wire, "packet", *case))
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
    // The poller runs no filter: packets that come before a new filter, and are read after it, are
    // chosen by the new filter alone.
    ensure_said(&[("filtered", "20, 40, 6 packets"), calls::OUTGOING])
}

#[test]
#[ignore = "needs root: run by make test"]
fn counters_add_up() -> Result<()> {
    // Before they are read, packets that the filter will reject are counted, too.
    let expected = " received before, 5000 read, 5000 received, 0 dropped";
    on_wire(1, |wire| {
        let _poller = Poller::start("packet")?;
        let said = calls::said(wire, "packet", "counted")?;
        ensure!(said.ends_with(expected), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn packets_have_their_time_length_and_direction() -> Result<()> {
    ensure_said(calls::STAMPED)?;
    ensure_said(&[calls::DIRECTED])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_daemon_reads_on_when_its_parent_has_ended() -> Result<()> {
    ensure_said(calls::FORKED)
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_child_that_closes_its_copy_does_not_end_its_parents_membership() -> Result<()> {
    ensure_said(&[("childs_close", "40 packets, then 5000")])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_new_group_has_a_number_of_its_own_which_others_join() -> Result<()> {
    on_wire(1, |wire| {
        let _poller = Poller::start("packet")?;
        let program = Program::new(wire.compile("new_groups")?, "")?;
        let ended = program.arg("packet:vb").run(&wire.scratch)?;
        let said = ended.said.trim_end();
        ensure!(
            said == "a number, another, joined, in the statistics",
            "{said}"
        );
        Ok(())
    })
}
