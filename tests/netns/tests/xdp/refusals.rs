//! Devices that the XDP engine can't serve. The library must read packet sockets instead, and the
//! application must get a message with the reason.

use anyhow::{Context, Result, ensure};
use fanpcap_bpf::{Instruction, ProgramKind};
use fanpcap_linux::bpf::{Hook, LoadedProgram};
use fanpcap_linux::interface;
use fanpcap_netns::{DEVICE, Wire, on_wire};
use fanpcap_testkit::Program;
use fanpcap_testkit::veth::ip;

use crate::scene::{ensure_on_page, start, start_as, tcpdump};

/// Checks that the application's message says that packet sockets are read, and why. docs/errors.md
/// must have the reason.
fn ensure_told(wire: &Wire, program: Program, reason: &str) -> Result<()> {
    ensure_on_page(reason)?;
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
        let no_driver = "has no driver that receives: capture on its ports";
        for (device, reason) in [
            ("any", "the device any has no driver: name one device"),
            ("lo", "a loopback device has no driver that receives"),
            ("br0", &format!("a device of the kind bridge {no_driver}")),
        ] {
            let program = wire.tcpdump_on(device)?.set("PCAP_DRIVER", "xdp");
            ensure_told(wire, program, reason)?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn what_is_no_network_interface_is_libpcaps() -> Result<()> {
    on_wire(1, |wire| {
        let nflog = || wire.tcpdump_on("nflog");
        let plain = nflog()?.start(&wire.scratch);
        let Ok(plain) = plain else {
            println!("SKIP: the kernel has no nflog");
            return Ok(());
        };
        plain.stop()?;
        let reason = "is no network interface: libpcap reads it, not the engine xdp";
        ensure_on_page(reason)?;
        let member = nflog()?.set("PCAP_DRIVER", "xdp").start(&wire.scratch)?;
        let said = member.said()?;
        ensure!(
            said.contains(&format!("nflog {reason} (set by PCAP_DRIVER=xdp)")),
            "{said}"
        );
        ensure!(!said.contains("packet sockets"), "{said}");
        member.stop().map(drop)
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
        let reason = "the device has another XDP program already";
        ensure_told(wire, tcpdump(wire)?, reason)?;
        let member = tcpdump(wire)?.start(&wire.scratch)?;
        ensure!(member.said()?.contains("already, stranger (id "));
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
            let reason =
                "takes CAP_BPF and CAP_NET_ADMIN, which this process lacks or has given up";
            ensure_told(wire, program, reason).with_context(|| missing.to_owned())?;
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_has_given_up_capabilities_is_told_so_in_a_group() -> Result<()> {
    on_wire(1, |wire| {
        let member = start_as(wire, tcpdump(wire)?.set("PCAP_GROUP", "7"))?;
        let program = Program::new(
            "setpriv",
            "each member of a group on engine xdp needs CAP_BPF",
        )?
        .args(["--bounding-set", "-sys_admin,-bpf", "--inh-caps", "-all"])
        .args([
            "tcpdump",
            "-n",
            "-Z",
            "root",
            "-i",
            DEVICE,
            "-w",
            "/dev/null",
        ])
        .set("PCAP_DRIVER", "xdp")
        .set("PCAP_GROUP", "7");
        let ended = program.start(&wire.scratch)?.wait()?;
        ensure!(
            ended.said.contains("or has given up before"),
            "{}",
            ended.said
        );
        member.stop().map(drop)
    })
}

/// linux/bpf.h.
const XDP_PASS: i32 = 2;
