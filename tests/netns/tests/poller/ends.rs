//! The poller's end: the application reads what is left, and then gets an error or waits.

use std::thread;

use anyhow::{Result, ensure};
use fanpcap_netns::{Wire, ensure_each_once, on_wire};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::member::Member;
use fanpcap_testkit::traffic::{self, Frame};

use crate::scene::{Poller, tcpdump};

fn frames(wire: &Wire, from: u64) -> Result<Vec<Frame>> {
    let frames = traffic::frames(from, &traffic::flows(1, 20), from..from + 1000)?;
    wire.send_as_tap(&frames)?;
    Ok(frames)
}

#[test]
#[ignore = "needs root: run by make test"]
fn reads_fail_when_the_poller_has_ended_but_only_after_the_last_packet() -> Result<()> {
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        let member = tcpdump(wire, "packet")?.group(5, "flow");
        let member = member.start(&wire.scratch)?;
        poller.await_shares(5, 1)?;
        member.signal("STOP")?;
        let frames = frames(wire, 0)?;
        await_for("the packets to be in the pool", LIMIT, || {
            let counts = poller.counts(5);
            Ok(counts.is_some_and(|it| it.produced == 1000).then_some(()))
        })?;
        drop(poller);
        member.signal("CONT")?;
        let ended = member.wait()?;
        ensure!(!ended.status.success(), "{}", ended.said);
        let text = "the poller of packet:vb has ended or has closed the connection: start it";
        ensure!(ended.said.contains(text), "{}", ended.said);
        ensure_each_once(&[ended.capture()?], &frames)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_handle_that_waits_goes_on_with_the_next_poller() -> Result<()> {
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        let start = |program: fanpcap_testkit::Program| {
            program.set("PCAP_GONE", "wait").start(&wire.scratch)
        };
        let mut members: Vec<Member> = vec![
            start(tcpdump(wire, "packet")?)?,
            start(tcpdump(wire, "packet")?.group(5, "flow"))?,
        ];
        poller.await_shares(5, 1)?;
        let mut all = frames(wire, 0)?;
        for member in &members {
            await_for("the first packets", LIMIT, || {
                Ok((member.captured() == all.len()).then_some(()))
            })?;
        }
        drop(poller);
        thread::sleep(std::time::Duration::from_millis(300));
        let poller = Poller::start("packet")?;
        poller.await_shares(5, 1)?;
        poller.await_groups(2)?;
        all.extend(frames(wire, 1000)?);
        for member in members.drain(..) {
            await_for("all packets", LIMIT, || {
                Ok((member.captured() == all.len()).then_some(()))
            })?;
            let ended = member.stop()?;
            let received = ended.count(" packets received by filter")?;
            ensure!(received == all.len(), "{received} received");
            ensure_each_once(&[ended.capture()?], &all)?;
        }
        Ok(())
    })
}
