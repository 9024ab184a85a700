//! Kernels and drivers that lack a feature that the XDP engine needs. The library must read packet
//! sockets instead and lose no packet. The application gets a message with the reason, which
//! docs/errors.md lists.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::{Wire, ensure_each_once, on_wire, wait_for_shares};
use fanpcap_testkit::member::finish;
use fanpcap_testkit::{Program, traffic};

use crate::scene::{ensure_on_page, preload, start_as, tcpdump};

/// A missing feature, as `c/without.c` names it, and the reason in the application's message.
const LACKING: [(&str, &str); 7] = [
    ("bpf", "the BPF program's maps: Function not implemented"),
    (
        "capability",
        "loading a BPF program takes CAP_BPF and CAP_NET_ADMIN",
    ),
    ("ring-buffer", "the BPF program's maps: Invalid argument"),
    ("frags", "the kernel is older than Linux 5.18"),
    ("link", "the device's driver takes no XDP program"),
    ("native", "the device's driver takes no XDP program"),
    (
        "tcx",
        "packets that the host sends can't be captured before Linux 6.6",
    ),
];

fn without(program: Program, stub: &Path, what: &str) -> Program {
    program.set("LD_PRELOAD", stub).set("WITHOUT", what)
}

#[test]
#[ignore = "needs root: run by make test"]
fn packet_sockets_stand_in_where_the_kernel_lacks_something() -> Result<()> {
    for (what, reason) in LACKING {
        ensure_on_page(reason)?;
        on_wire(1, |wire| stand_in(wire, what, reason)).with_context(|| format!("no {what}"))?;
    }
    Ok(())
}

/// Checks that packet sockets replace the engine for a handle without a group, and for members of a
/// group.
fn stand_in(wire: &Wire, what: &str, reason: &str) -> Result<()> {
    let stub = preload(wire, "without")?;
    let start = |group: &str| {
        let program = without(tcpdump(wire)?, &stub, what);
        let member = program.set("PCAP_GROUP", group).start(&wire.scratch)?;
        let said = member.said()?;
        let is_told = said.contains("packet sockets are read, not the engine xdp");
        ensure!(is_told && said.contains(reason), "{said}");
        Ok(member)
    };
    let alone = start("")?;
    let members = vec![start("7")?, start("7")?];
    wait_for_shares()?;
    let frames = traffic::frames(1, &traffic::flows(1, 40), 0..500)?;
    wire.send_as_tap(&frames)?;
    for all in [vec![alone], members] {
        ensure_each_once(&finish(all, frames.len())?, &frames)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn without_tcx_the_engine_captures_what_comes() -> Result<()> {
    on_wire(1, |wire| {
        let config = wire.scratch.file("pcap.conf");
        fs::write(&config, "driver@vb = xdp\noutgoing@vb = no\n")?;
        let program = wire.tcpdump()?.set("PCAP_CONFIG", config);
        let member = start_as(wire, without(program, &preload(wire, "without")?, "tcx"))?;
        let frames = traffic::frames(1, &traffic::flows(1, 40), 0..500)?;
        wire.send_as_tap(&frames)?;
        ensure_each_once(&finish(vec![member], frames.len())?, &frames)
    })
}
