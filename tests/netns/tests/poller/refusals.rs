//! Why a handle gets no packets from a poller.

use std::fs;
use std::os::fd::AsFd;

use anyhow::{Result, ensure};
use fanpcap_linux::unix::named;
use fanpcap_netns::{Wire, on_wire};
use fanpcap_poll::place;
use fanpcap_testkit::Program;

use crate::scene::{Poller, tcpdump};

/// Checks that an application fails with this text.
fn ensure_fails(wire: &Wire, program: Program, text: &str) -> Result<()> {
    let ended = program.run(&wire.scratch)?;
    ensure!(!ended.status.success(), "{}", ended.said);
    ensure!(
        ended.said.contains(text),
        "{text:?} is not in:\n{}",
        ended.said
    );
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn without_a_poller_the_message_says_how_to_start_one() -> Result<()> {
    on_wire(1, |wire| {
        let text = "no poller serves packet:vb: start one: fanpcap poller packet:vb";
        ensure_fails(wire, tcpdump(wire, "packet")?, text)?;
        let in_group = tcpdump(wire, "packet")?.group(5, "flow");
        ensure_fails(wire, in_group, text)?;
        let by_setting = wire.tcpdump()?.set("PCAP_DRIVER", "packet");
        let text = format!("{text} (set by PCAP_DRIVER=packet)");
        ensure_fails(wire, by_setting, &text)?;
        // A poller of another engine does not serve this one.
        let _poller = Poller::start("packet")?;
        let text = "no poller serves afxdp:vb: start one: fanpcap poller afxdp:vb";
        ensure_fails(wire, tcpdump(wire, "afxdp")?, text)
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_the_poller_refuses_is_told() -> Result<()> {
    on_wire(1, |wire| {
        let _poller = Poller::start("packet")?;
        let _member = tcpdump(wire, "packet")?
            .group(5, "flow")
            .start(&wire.scratch)?;
        let other = tcpdump(wire, "packet")?.group(5, "main = steer_rrobin");
        let text = "(set by PCAP_GROUP=5)";
        ensure_fails(wire, other, text)?;
        let filters = "main = filter \"tcp port 80\" >-> steer_flow";
        let filters = tcpdump(wire, "packet")?.group(6, filters);
        ensure_fails(
            wire,
            filters,
            "the poller has no filters in steering programs",
        )
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_socket_of_a_poller_that_was_killed_is_no_poller() -> Result<()> {
    on_wire(1, |wire| {
        let poller = Poller::start("packet")?;
        let socket = poller.path()?;
        drop(poller);
        // A socket file on which no process listens.
        let (directory, _) = place::make()?;
        let listener = named::socket()?;
        let name = socket.file_name().unwrap_or_default();
        named::listen(listener.as_fd(), &directory, name, 0o660, 1)?;
        drop(listener);
        let failed = ensure_fails(
            wire,
            tcpdump(wire, "packet")?,
            "no poller serves packet:vb: start one",
        );
        fs::remove_file(&socket)?;
        let _ = place::remove_empty();
        failed
    })
}
