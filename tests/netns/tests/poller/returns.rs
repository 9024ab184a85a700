//! Handles with `gone = wait` whose poller has ended: what they are at the next one.

use anyhow::{Result, ensure};
use fanpcap_netns::{Wire, on_wire};
use fanpcap_poller::packet::Options;
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::member::Member;
use fanpcap_testkit::traffic::{self, Frame};

use crate::scene::{Poller, tcpdump};

fn frames(wire: &Wire, from: u64) -> Result<Vec<Frame>> {
    let frames = traffic::frames(from, &traffic::flows(1, 20), from..from + 20)?;
    wire.send_as_tap(&frames)?;
    Ok(frames)
}

/// A member of group 5 that waits for the next poller.
fn waiting(wire: &Wire) -> Result<Member> {
    let program = tcpdump(wire, "packet")?.group(5, "flow");
    program.set("PCAP_GONE", "wait").start(&wire.scratch)
}

/// A handle does not wait in its read for the poller's answer, and must not ask again and again.
#[test]
#[ignore = "needs root: run by make test"]
fn a_handle_enters_the_group_of_a_poller_that_answers_late() -> Result<()> {
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        let member = waiting(wire)?;
        poller.await_shares(5, 1)?;
        drop(poller);
        let poller = Poller::start_late("packet")?;
        let mut sent = 0;
        await_for("the member to read", LIMIT, || {
            sent += frames(wire, sent)?.len() as u64;
            Ok((member.captured() > 0).then_some(()))
        })?;
        poller.await_shares(5, 1)?;
        member.stop().map(drop)
    })
}

/// Nobody asks for the counters before the poller ends.
#[test]
#[ignore = "needs root: run by make test"]
fn drops_before_a_poller_that_has_ended_are_counted() -> Result<()> {
    on_wire(1, |wire| {
        // A ring of 1 MiB.
        let options = Options {
            blocks: 4,
            ..Options::default()
        };
        let poller = Poller::start_with("packet", options)?;
        let waiting = waiting(wire)?;
        let other = tcpdump(wire, "packet")?.group(5, "flow");
        let other = other.start(&wire.scratch)?;
        poller.await_shares(5, 2)?;
        let stall = poller.stall();
        let all = traffic::frames(1, &traffic::flows(1, 20), 0..20_000)?;
        wire.send_as_tap(&all)?;
        drop(stall);
        let dropped = poller.dropped()?;
        ensure!(dropped > 0, "the ring was not full");
        // The poller writes the number into all pools of a group at once.
        let expected = format!("{dropped} packets dropped by interface");
        await_for(&expected, LIMIT, || {
            other.signal("USR1")?;
            Ok(other.said()?.contains(&expected).then_some(()))
        })?;
        drop(poller);
        let poller = Poller::start("packet")?;
        poller.await_shares(5, 1)?;
        let ended = waiting.stop()?;
        ensure!(ended.said.contains(&expected), "{}", ended.said);
        Ok(())
    })
}

/// The mode that both members had is that of the other one.
#[test]
#[ignore = "needs root: run by make test"]
fn a_member_without_a_mode_that_comes_back_first_begins_the_group_as_it_was() -> Result<()> {
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        let with_mode = tcpdump(wire, "packet")?.group(5, "flow_2_tuple");
        let with_mode = with_mode.set("PCAP_GONE", "wait").start(&wire.scratch)?;
        let other = tcpdump(wire, "packet")?.set("PCAP_GROUP", "5");
        let other = other.set("PCAP_GONE", "wait").start(&wire.scratch)?;
        poller.await_shares(5, 2)?;
        with_mode.signal("STOP")?;
        drop(poller);
        let poller = Poller::start("packet")?;
        poller.await_shares(5, 1)?;
        with_mode.signal("CONT")?;
        poller.await_shares(5, 2)?;
        other.stop()?;
        with_mode.stop().map(drop)
    })
}
