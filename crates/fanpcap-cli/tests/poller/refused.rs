//! Devices and options that a poller refuses, with the reason and what to do.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_bpf::{Instruction, ProgramKind};
use fanpcap_linux::bpf::{Hook, LoadedProgram};
use fanpcap_linux::interface;
use fanpcap_testkit::needs;
use fanpcap_testkit::veth::{Veth, ip};

use crate::running::{Poller, directory, refused, told, within};
use crate::{FAR, NEAR};

fn ensure_refused(arguments: &str, expected: &[&str]) -> Result<()> {
    let said = refused(arguments)?;
    for part in expected {
        ensure!(said.contains(part), "{arguments}: {said}");
    }
    let directory = directory()?;
    ensure!(!directory.exists(), "{arguments} leaves {directory:?}");
    Ok(())
}

#[test]
fn a_line_that_makes_no_sense_is_explained() {
    for (arguments, expected) in [
        ("eth0", "packet:eth0 or afxdp:eth0"),
        ("xdp:eth0", "no engine of the poller has the name 'xdp'"),
        ("packet:lo packet:lo", "packet:lo is named twice"),
        ("packet:lo --socket-group no-such", "no group \"no-such\""),
        (
            "packet:lo --policy /no-such-file",
            "the policy file /no-such-file",
        ),
        ("packet:lo --cpus 4095", "may not run on CPU 4095"),
    ] {
        let said = refused(arguments).unwrap();
        assert!(said.contains(expected), "{arguments}: {said}");
    }
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn a_device_that_can_not_be_served_is_refused_with_the_reason() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        ensure_refused("packet:nowhere", &["no device 'nowhere'", "ip link"])?;
        ensure_refused("afxdp:lo --steal force", &["afxdp:lo: a loopback device"])?;
        ip("link add fppbr type bridge")?;
        ip("link set fppbr up")?;
        ensure_refused(
            "afxdp:fppbr",
            &["afxdp:fppbr: the device's driver takes no XDP program"],
        )?;
        ip("tuntap add fpptun mode tun")?;
        ip("link set fpptun up")?;
        for engine in ["packet", "afxdp"] {
            let expected = format!("{engine}:fpptun: the device's frames are not Ethernet");
            ensure_refused(&format!("{engine}:fpptun"), &[&expected])?;
        }
        let index = interface::index(FAR).context("no device")?;
        let pass = [Instruction::set(0, 2), Instruction::exit()];
        let foreign = LoadedProgram::load(ProgramKind::Xdp, "somebodys", &pass)?;
        let attached = foreign.attach(index, Hook::Driver)?;
        let id = format!("somebodys (id {})", attached.program_id()?);
        ensure_refused(&format!("afxdp:{FAR}"), &[&id, &format!("packet:{FAR}")])?;
        drop(attached);
        ip(&format!("link set {FAR} down"))?;
        ensure_refused(&format!("afxdp:{FAR}"), &["the device is down"])
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces"]
fn a_missing_capability_is_named() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        for (without, engine, expected) in [
            ("net_raw", "packet", "CAP_NET_RAW"),
            ("bpf,-sys_admin", "packet", "CAP_BPF"),
            ("net_admin", "afxdp", "CAP_NET_ADMIN"),
        ] {
            let mut command = Command::new("setpriv");
            command
                .arg(format!("--bounding-set=-{without}"))
                .args(["--", env!("CARGO_BIN_EXE_fanpcap"), "poller"])
                .arg(format!("{engine}:{FAR}"));
            let said = told(command.output()?)?;
            ensure!(said.contains(expected), "{said}");
        }
        Ok(())
    })
    .unwrap();
}

/// A device that the host uses, and one that it begins to use.
#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn packets_of_the_hosts_device_are_not_stolen() {
    within(|| {
        Veth::new(NEAR, FAR, 1)?;
        ip(&format!("address add 10.79.0.1/24 dev {FAR}"))?;
        let expected = [
            "the host uses fppfar: it has an IP address",
            "'--steal force'",
        ];
        ensure_refused(&format!("afxdp:{FAR}"), &expected)?;
        let forced = Poller::start(&format!("afxdp:{FAR} --steal force"), 1)?;
        forced.end()?;
        ip(&format!("address del 10.79.0.1/24 dev {FAR}"))?;
        let poller = Poller::start(&format!("afxdp:{FAR}"), 1)?;
        ip(&format!("address add 10.79.0.1/24 dev {FAR}"))?;
        poller.await_said("stolen from the host, which may need them: it has an IP address")?;
        ip(&format!("address del 10.79.0.1/24 dev {FAR}"))?;
        poller.await_said("no longer: the packets are stolen")
    })
    .unwrap();
}

/// Runs a copy of the command, which has file capabilities, as another user.
const RAISED: &str = "dir=$(mktemp -d) && chmod 755 $dir && cp \"$0\" $dir/own && \
    setcap cap_net_raw,cap_bpf=ep $dir/own; \
    setpriv --reuid=65534 --regid=65534 --clear-groups $dir/own poller \"$@\"; \
    code=$?; rm -r $dir; exit $code";

/// DPDK's own words can name a file whose code runs in the poller.
#[test]
#[ignore = "needs root: file capabilities"]
fn a_command_with_more_rights_than_its_user_refuses_devices_of_dpdk() {
    if !needs::programs(&["setcap"]) {
        return;
    }
    let mut command = Command::new("sh");
    command.args(["-c", RAISED, env!("CARGO_BIN_EXE_fanpcap")]);
    command.args([
        "dpdk:net_null0",
        "--no-huge",
        "--eal=-d",
        "--eal=/tmp/own.so",
    ]);
    let said = told(command.output().unwrap()).unwrap();
    assert!(said.contains("more rights than its user"), "{said}");
    assert!(said.contains("start the command as root"), "{said}");
}
