//! pcap_inject(3PCAP) of processes without privileges: the poller sends their frames, if it may.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::{FAR_DEVICE, Wire, on_wire};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::{Program, needs};

use crate::scene::{Poller, tcpdump};

/// `c/injects.c` as a user without capabilities.
fn injects(wire: &Wire, engine: &str, what: &str) -> Result<Program> {
    let program = wire.compile("injects")?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    let directory = program.parent().context("no directory")?;
    fs::set_permissions(directory, Permissions::from_mode(0o755))?;
    let nobody = [
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--no-new-privs",
    ];
    let run = Program::new("setpriv", "")?.args(nobody).arg(program);
    Ok(run.arg(format!("{engine}:vb")).arg(what))
}

/// What it prints.
fn said(wire: &Wire, engine: &str, what: &str) -> Result<String> {
    let ended = injects(wire, engine, what)?.run(&wire.scratch)?;
    ensure!(ended.status.success(), "{}\n{}", ended.status, ended.said);
    Ok(ended.said.trim_end().to_owned())
}

/// Runs a test with a poller to which all users may connect, where there are user namespaces.
fn on_poller(
    engine: &str,
    start: fn(&str) -> Result<Poller>,
    test: impl Fn(&Wire, &Poller) -> Result<()> + Send + Sync,
) -> Result<()> {
    on_wire(1, |wire| {
        if !needs::user_namespaces() {
            return Ok(());
        }
        let poller = start(engine)?;
        fs::set_permissions(poller.path()?, Permissions::from_mode(0o666))?;
        test(wire, &poller)
    })
}

fn arrive(engine: &str) -> Result<()> {
    on_poller(engine, Poller::start_sending, |wire, poller| {
        let far = wire.tcpdump_on(FAR_DEVICE)?.start(&wire.scratch)?;
        let said = said(wire, engine, "few")?;
        ensure!(said == "60 0 60", "{said}");
        await_for("the frames", LIMIT, || {
            Ok((far.captured() >= 3).then_some(()))
        })?;
        let packets = far.stop()?.capture()?.packets;
        ensure!(packets.len() == 3, "{packets:?}");
        let sent = poller.sent();
        ensure!((sent.sent, sent.failed) == (3, 0), "{sent:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn frames_of_members_are_sent_on_a_packet_socket() -> Result<()> {
    arrive("packet")
}

#[test]
#[ignore = "needs root: run by make test"]
fn frames_of_members_are_sent_beside_af_xdp() -> Result<()> {
    arrive("afxdp")
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_frame_that_can_not_be_sent_is_an_error() -> Result<()> {
    on_poller("packet", Poller::start_sending, |wire, _| {
        let said = said(wire, "packet", "long")?;
        ensure!(said == "-1, send: Message too long", "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_poller_that_may_not_send_says_what_to_do() -> Result<()> {
    on_poller("packet", Poller::start, |wire, poller| {
        let said = said(wire, "packet", "few")?;
        let expected = "-1 -1 -1, send: the handle has no socket on the device";
        ensure!(
            said.starts_with(expected) && said.ends_with("with --send"),
            "{said}"
        );
        ensure!(poller.sent().sent == 0);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_member_that_sends_too_fast_is_told_and_does_not_stop_the_poller() -> Result<()> {
    on_poller("packet", Poller::start_sending, |wire, poller| {
        let other = tcpdump(wire, "packet")?.start(&wire.scratch)?;
        let flood = injects(wire, "packet", "flood")?.spawn(&wire.scratch)?;
        let stat = format!("/proc/{}/stat", flood.pid());
        await_for("the stop", LIMIT, || {
            Ok(fs::read_to_string(&stat)?.contains(") T ").then_some(()))
        })?;
        let ended = poller.while_deaf(|| {
            flood.signal("CONT")?;
            flood.wait()
        })?;
        let (count, error) = ended.said.trim_end().split_once(", ").context("no count")?;
        ensure!(error == "send: Resource temporarily unavailable", "{error}");
        let count: u64 = count.parse()?;
        ensure!(count > 0, "no room for one frame");
        await_for("all frames", LIMIT, || {
            let all = (poller.sent().sent, other.captured() as u64);
            Ok((all == (count, count)).then_some(()))
        })?;
        other.stop().map(drop)
    })
}
