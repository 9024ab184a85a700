//! Applications on the XDP engine, at a wire's end.

use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_linux::bpf::program_name;
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;
use fanpcap_netns::{DEVICE, Wire};
use fanpcap_testkit::await_for::await_for;
use fanpcap_testkit::{Member, Program};

/// Within this time the kernel has freed what nobody holds.
const SOON: Duration = Duration::from_secs(2);

/// tcpdump on the XDP engine, at the wire's end.
pub(crate) fn tcpdump(wire: &Wire) -> Result<Program> {
    Ok(wire.tcpdump()?.set("PCAP_DRIVER", "xdp"))
}

/// Starts tcpdump and checks that no packet socket stands in for the engine.
pub(crate) fn start(wire: &Wire) -> Result<Member> {
    start_as(wire, tcpdump(wire)?)
}

/// Starts an application and checks that no packet socket stands in for the engine.
pub(crate) fn start_as(wire: &Wire, program: Program) -> Result<Member> {
    let member = program.start(&wire.scratch)?;
    let said = member.said()?;
    ensure!(!said.contains("packet sockets"), "{said}");
    Ok(member)
}

/// The number of the device's XDP program, if the device is there.
pub(crate) fn program() -> Result<Option<u32>> {
    match interface::index(DEVICE) {
        Some(index) => Ok(link::get(index)?.xdp.map(|xdp| xdp.program)),
        None => Ok(None),
    }
}

/// Checks that the device's XDP program is soon gone, and `before` with it.
pub(crate) fn ensure_nothing_left(before: Option<u32>) -> Result<()> {
    await_for("the device's XDP program to go", SOON, || {
        let is_gone = before.is_none_or(|before| program_name(before).is_err());
        Ok((program()?.is_none() && is_gone).then_some(()))
    })
}
