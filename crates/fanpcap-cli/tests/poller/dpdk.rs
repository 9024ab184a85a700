//! Devices of DPDK: on a plugin without DPDK that invents them, and, if DPDK is installed, on its
//! virtual devices.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_linux::{interface, netlink::link};
use fanpcap_poll::{message::Hello, place};
use fanpcap_polled::{PolledMember, enter};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::traffic::{self, Direction};
use fanpcap_testkit::veth::{Veth, ip};
use fanpcap_testkit::{Scratch, dpdk};

use crate::running::{Member, Poller, Sent, command, hello, told, within};
use crate::tcpdump::share_flow_by_flow;
use crate::{FAR, NEAR};

/// The variable that names a plugin.
const PLUGIN: &str = "FANPCAP_DPDK_PLUGIN";

/// A poller of the plugin that invents its devices.
fn invented(scratch: &Scratch, arguments: &str) -> Result<Command> {
    let mut command = command(arguments);
    command.env(PLUGIN, dpdk::stand_in(scratch, &[])?);
    Ok(command)
}

/// DPDK, which is installed.
pub(crate) struct Installed {
    plugin: PathBuf,
    pub(crate) scratch: Scratch,
}

impl Installed {
    /// Starts a poller of one of DPDK's own devices, without huge pages.
    pub(crate) fn start(&self, arguments: &str) -> Result<Poller> {
        let mut command = command(&format!("{arguments} --no-huge"));
        command.env(PLUGIN, &self.plugin);
        Poller::start_by(command, 1)
    }
}

/// Runs a test with DPDK, which is skipped if DPDK is not installed.
#[allow(clippy::unwrap_used, reason = "a test may panic")]
pub(crate) fn with_dpdk(test: impl FnOnce(&Installed) -> Result<()> + Send) {
    let scratch = Scratch::new().unwrap();
    if let Ok(plugin) = dpdk::plugin(&scratch) {
        let installed = Installed { plugin, scratch };
        within(|| test(&installed)).unwrap();
    }
}

/// The device on [`FAR`]. Its ring loses no packet if the poller's thread does not get the CPU.
fn af_packet() -> String {
    format!("dpdk:net_af_packet0,iface={FAR},framecnt=16384")
}

/// A process that sends frames by the poller, and is in no group.
fn sender(device: &str) -> Result<PolledMember> {
    let found = place::open("dpdk", device)?;
    let hello = Hello {
        group: None,
        ..hello()
    };
    Ok(enter(&found.directory, &found.name, &hello, LIMIT)?)
}

fn await_got(members: &mut [Member], count: usize) -> Result<()> {
    await_for("packets", LIMIT, || {
        members.iter_mut().try_for_each(Member::read)?;
        let got: usize = members.iter().map(|it| it.got.len()).sum();
        Ok((got >= count).then_some(()))
    })
}

#[test]
#[ignore = "needs root: a poller's socket and pools"]
fn what_dpdk_lacks_is_told() {
    within(|| {
        let scratch = Scratch::new()?;
        let said = |arguments: &str, plugin: &str| {
            let mut limited = Command::new("timeout");
            limited.args(["60", env!("CARGO_BIN_EXE_fanpcap"), "poller"]);
            let limited = limited
                .args(arguments.split_whitespace())
                .env(PLUGIN, plugin);
            told(limited.output()?)
        };
        let path =
            |flags: &[&str]| anyhow::Ok(dpdk::stand_in(&scratch, flags)?.display().to_string());
        let good = path(&[])?;
        let said_by_good = |arguments: &str| said(arguments, &good);
        for (arguments, expected) in [
            ("dpdk:eth0", "no device 'eth0': write a PCI address"),
            ("dpdk:net_absent0 --no-huge", "(net_absent0 of bus vdev)"),
            (
                "dpdk:net_forbidden0 --no-huge",
                "this process may not open the device",
            ),
            (
                "dpdk:net_one0 --no-huge --queues 5",
                "4 receive queues at most: --queues 4",
            ),
            (
                "dpdk:net_one0 --no-huge --eal=--refuse",
                "DPDK does not start",
            ),
            (
                "dpdk:ffff:1f:1f.7 --no-huge",
                "no PCI device ffff:1f:1f.7: 'dpdk-devbind.py",
            ),
        ] {
            let said = said_by_good(arguments)?;
            ensure!(said.contains(expected), "{arguments}: {said}");
        }
        let later = said("dpdk:net_one0", &path(&["-DSTAND_IN_VERSION=2"])?)?;
        ensure!(later.contains("has version 2 of the interface"), "{later}");
        let absent = said("dpdk:net_one0", "/absent/fanpcap-dpdk.so")?;
        ensure!(
            absent.contains("install the package fanpcap-dpdk"),
            "{absent}"
        );
        if fanpcap_dpdk::free_huge_bytes("/sys".as_ref()) == 0 {
            let said = said_by_good("dpdk:net_one0")?;
            ensure!(said.contains("'sysctl vm.nr_hugepages=50'"), "{said}");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: a poller's socket and pools"]
fn members_share_the_packets_of_a_device_without_an_interface() {
    within(|| {
        let scratch = Scratch::new()?;
        let arguments = "dpdk:net_one0,interrupts --queues 2 --send --no-huge";
        let poller = Poller::start_by(invented(&scratch, arguments)?, 1)?;
        let said = poller.said()?;
        let expected = "serving dpdk:net_one0 (stand-in for DPDK, driver stand-in, with interrupts";
        ensure!(said.contains(expected), "{said}");
        let mut members = vec![
            Member::enter_at("dpdk", "net_one0")?,
            Member::enter_at("dpdk", "net_one0")?,
        ];
        let sender = sender("net_one0")?;
        members.iter_mut().try_for_each(Member::read)?;
        let mut count = 0;
        for frame in traffic::frames(3, &traffic::flows(3, 50), 0..200)? {
            // The device has room for one frame.
            sender.send(&frame.bytes)?;
            count += 1;
            await_got(&mut members, count)?;
        }
        ensure!(
            members.iter().all(|it| !it.got.is_empty()),
            "both have a share"
        );
        confined(poller.id())?;
        // The device is removed.
        sender.send(&[2])?;
        poller.await_said("start the poller again when it is back")?;
        let summary = poller.end()?.join("\n");
        ensure!(summary.contains("201 frames of members sent"), "{summary}");
        Ok(())
    })
    .unwrap();
}

/// Waits until no thread of a poller has a capability that it does not need, and all are confined
/// to system calls. The poller's line about a device comes before.
fn confined(pid: u32) -> Result<()> {
    await_for("confinement", LIMIT, || Ok(is_confined(pid)?.then_some(())))
}

fn is_confined(pid: u32) -> Result<bool> {
    // linux/capability.h: CAP_NET_RAW, CAP_SYS_ADMIN or CAP_BPF.
    let allowed: u64 = (1 << 13) | (1 << 21) | (1 << 39);
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let status = fs::read_to_string(task?.path().join("status"))?;
        let value = |key: &str| {
            let line = status.lines().find_map(|it| it.strip_prefix(key));
            line.map(str::trim)
                .map(str::to_owned)
                .context(key.to_owned())
        };
        let has = u64::from_str_radix(&value("CapEff:")?, 16)?;
        if has & !allowed != 0 || value("Seccomp:")? != "2" {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Microseconds of CPU time that a process has taken.
fn cpu_us(pid: u32) -> Result<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))?;
    let all = tasks.map(|task| Ok(fs::read_to_string(task?.path().join("schedstat"))?));
    let all: Result<Vec<String>> = all.collect();
    let all = all?;
    let nanoseconds = all
        .iter()
        .filter_map(|it| it.split(' ').next()?.parse::<u64>().ok());
    Ok(nanoseconds.sum::<u64>() / 1000)
}

#[test]
#[ignore = "needs root: network namespaces"]
fn tcpdumps_share_the_packets_of_net_af_packet() {
    with_dpdk(|installed| {
        Veth::new(NEAR, FAR, 1)?;
        for more in ["", ",qpairs=2 --queues 2"] {
            let poller = installed.start(&format!("{}{more}", af_packet()))?;
            confined(poller.id())?;
            share_flow_by_flow("dpdk:net_af_packet0")?;
            let summary = poller.end()?.join("\n");
            ensure!(summary.contains("dpdk:net_af_packet0"), "{summary}");
        }
        Ok(())
    });
}

#[test]
#[ignore = "needs root: network namespaces"]
fn frames_of_members_are_sent_on_net_ring() {
    with_dpdk(|installed| {
        // What is sent on such a device comes back.
        let poller = installed.start("dpdk:net_ring0 --send")?;
        let mut members = vec![Member::enter_at("dpdk", "net_ring0")?];
        members[0].read()?;
        let sender = sender("net_ring0")?;
        // Some devices hang on such frames. This device could send them.
        for len in [16, 9216 + 19] {
            sender.send(&vec![1; len])?;
        }
        let flow = traffic::flows(4, 1)[0];
        for (sequence, len) in (0..).zip([60, 3000, 9000]) {
            let frame = traffic::frame(flow, Direction::Request, sequence, len)?;
            sender.send(&frame.bytes)?;
        }
        await_got(&mut members, 3)?;
        ensure!(members[0].got == [0, 1, 2]);
        // A poller that sleeps takes little CPU time. A limit for spinning would be 1 s.
        let before = cpu_us(poller.id())?;
        thread::sleep(Duration::from_secs(1));
        let took = cpu_us(poller.id())? - before;
        ensure!(took < 200_000, "{took} us");
        let summary = poller.end()?.join("\n");
        ensure!(
            summary.contains("3 frames of members sent, 2 frames of members not sent"),
            "{summary}"
        );
        Ok(())
    });
}

#[test]
#[ignore = "needs root: network namespaces"]
fn a_poller_of_dpdk_leaves_no_files_and_reports_an_interface_that_is_gone() {
    with_dpdk(|installed| {
        Veth::new(NEAR, FAR, 1)?;
        let poller = installed.start(&af_packet())?;
        let prefix = format!("/var/run/dpdk/fanpcap-{}", poller.id());
        ensure!(!std::path::Path::new(&prefix).exists(), "{prefix}");
        let mut members = vec![Member::enter_at("dpdk", "net_af_packet0")?];
        Sent::new()?.share(&mut members)?;
        ip(&format!("link delete {FAR}"))?;
        poller.await_said("start the poller again when it is back")?;
        poller.end()?;
        Ok(())
    });
}

#[test]
#[ignore = "needs root: network namespaces"]
fn the_interface_is_promiscuous_as_long_as_the_poller_lives() {
    with_dpdk(|installed| {
        Veth::new(NEAR, FAR, 1)?;
        let index = interface::index(FAR).context(FAR)?;
        let promiscuity = || anyhow::Ok(link::get(index)?.promiscuity);
        ensure!(promiscuity()? == 0);
        let poller = installed.start(&af_packet())?;
        confined(poller.id())?;
        ensure!(promiscuity()? == 1);
        poller.end()?;
        ensure!(promiscuity()? == 0, "it has ended");
        let poller = installed.start(&af_packet())?;
        let said = poller.said()?;
        ensure!(!said.contains("not promiscuous"), "{said}");
        poller.kill()?;
        await_for("the end of its sockets", LIMIT, || {
            Ok((promiscuity()? == 0).then_some(()))
        })
    });
}
