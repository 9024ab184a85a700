//! Devices that the XDP engine can't serve: packet sockets stand in for it, and the application
//! is told why.

use anyhow::{Context, Result, ensure};
use fanpcap_bpf::{Instruction, ProgramKind};
use fanpcap_linux::bpf::{Hook, LoadedProgram};
use fanpcap_linux::interface;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::Program;
use fanpcap_testkit::veth::ip;

use crate::scene::{start, tcpdump};

/// Checks that an application is told of packet sockets, and of the reason.
fn ensure_told(wire: &Wire, program: Program, reason: &str) -> Result<()> {
    let member = program.start(&wire.scratch)?;
    let said = member.said()?;
    let told = "packet sockets are read, not the engine xdp";
    ensure!(said.contains(told) && said.contains(reason), "{said}");
    member.stop()?;
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn packet_sockets_stand_in_where_the_engine_can_not_serve() -> Result<()> {
    on_wire(1, |wire| {
        ip("link add br0 type bridge")?;
        ip("link set br0 up")?;
        for device in ["any", "lo", "br0"] {
            let program = wire.tcpdump_on(device)?.set("PCAP_DRIVER", "xdp");
            ensure_told(wire, program, "(set by PCAP_DRIVER=xdp)")?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn another_applications_xdp_program_is_told_by_its_name() -> Result<()> {
    on_wire(1, |wire| {
        let code = [Instruction::set(0, XDP_PASS), Instruction::exit()];
        let stranger = LoadedProgram::load(ProgramKind::Xdp, "stranger", &code)?;
        let index = interface::index(DEVICE).context("the device")?;
        let attached = stranger.attach(index, Hook::Driver)?;
        ensure_told(wire, tcpdump(wire)?, "stranger")?;
        drop(attached);
        start(wire)?.stop()?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn without_capabilities_packet_sockets_stand_in() -> Result<()> {
    on_wire(1, |wire| {
        for missing in ["bpf", "net_admin"] {
            let without = format!("-sys_admin,-{missing}");
            let program = Program::new("setpriv", "listening on")?
                .args(["--bounding-set", &without, "--inh-caps", "-all", "tcpdump"])
                .args(["-n", "-U", "-Z", "root", "-i", DEVICE, "-w", "/dev/null"])
                .set("PCAP_DRIVER", "xdp");
            ensure_told(wire, program, "CAP_").with_context(|| missing.to_owned())?;
        }
        Ok(())
    })
}

/// linux/bpf.h.
const XDP_PASS: i32 = 2;
