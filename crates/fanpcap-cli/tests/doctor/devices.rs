//! Devices that get no packets, or only on one CPU.

use std::io::{self, Write};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use fanpcap_linux::bpf::{Hook, LoadedProgram};
use fanpcap_testkit::hosts::Hosts;
use fanpcap_testkit::veth::{self, ip};
use fanpcap_testkit::{Program, Scratch, Veth, await_for, cpus, mounts, netns};

use crate::asked::{Shell, within};

#[test]
#[ignore = "needs root: devices in a namespace"]
fn a_healthy_device_has_no_findings_that_lose() -> Result<()> {
    within(|_| {
        let names = Shell::new("fdr1")?.names()?;
        // Findings on the machine may exist, so this test ignores them.
        let of_machine = ["slow-clock", "no-jit", "powersave", "backlog", "apparmor"];
        let of_device: Vec<_> = names
            .iter()
            .filter(|it| !of_machine.contains(&it.as_str()))
            .collect();
        assert!(of_device.is_empty(), "{of_device:?}");
        let (status, said) = Shell::new("fdr9")?.run("fanpcap doctor fdr9 2>&1")?;
        ensure!(status == 1 && said.contains("no device 'fdr9'"), "{said}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: devices in a namespace"]
fn a_device_that_is_down_is_found_and_put_up() -> Result<()> {
    within(|_| {
        ip("link set fdr1 down")?;
        let found = Shell::new("fdr1")?.mend("down")?;
        assert_eq!(
            (found.effect.as_str(), found.place.as_str()),
            ("loses", "fdr1")
        );
        assert_eq!(found.fix, "ip link set dev fdr1 up");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: devices in a namespace"]
fn a_device_whose_other_end_is_down_is_found_and_linked() -> Result<()> {
    within(|_| {
        ip("link set fdr0 down")?;
        let shell = Shell::new("fdr1")?;
        let found = shell.found("no-link")?;
        assert_eq!(found.fix, "ip link set dev fdr0 up");
        shell.run(&found.fix)?;
        veth::await_up("fdr1")?;
        assert!(shell.find("", "no-link")?.is_none());
        Ok(())
    })
}

#[test]
#[ignore = "needs root: devices in a namespace"]
fn one_receiving_cpu_is_found_and_its_packets_are_spread() -> Result<()> {
    within(|_| {
        if cpus()?.len() < 2 {
            return Ok(());
        }
        Veth::new("fdr2", "fdr3", 1)?;
        let (_, before) = Shell::new("fdr3")?.run("fanpcap doctor fdr3")?;
        let advice = "No group uses fdr3. With a group: it has one receive queue, ";
        ensure!(before.contains(advice), "{before}");
        let shell = Shell::new("fdr3")?.set("PCAP_GROUP", "7");
        assert_eq!(shell.mend("one-receiving-cpu")?.effect, "costs");
        // The RPS of this fix has no effect on the XDP engine.
        let on_xdp = shell.set("PCAP_DRIVER", "xdp");
        let fix = on_xdp.mend("one-receiving-cpu")?.fix;
        ensure!(fix.contains(" --threads "), "{fix}");
        let two_queues = Shell::new("fdr1")?.set("PCAP_GROUP", "7");
        assert!(two_queues.find("", "one-receiving-cpu")?.is_none());
        Ok(())
    })
}

#[test]
#[ignore = "needs root: devices in a namespace"]
fn a_foreign_xdp_program_is_found() -> Result<()> {
    within(|_| {
        let pass = [
            fanpcap_bpf::Instruction::set(0, 2),
            fanpcap_bpf::Instruction::exit(),
        ];
        let program = LoadedProgram::load(fanpcap_bpf::ProgramKind::Xdp, "somebodys", &pass)?;
        let index = fanpcap_linux::interface::index("fdr1").unwrap_or(0);
        let link = program.attach(index, Hook::Driver)?;
        let shell = Shell::new("fdr1")?;
        let found = shell.found("foreign-xdp")?;
        assert_eq!(found.effect, "loses");
        assert!(
            found.fix.starts_with("ip link set dev fdr1 xdpdrv off "),
            "{found:?}"
        );
        // The XDP program is attached by a BPF link of the application. The link ends when the
        // application ends, and so the program is detached.
        drop(link);
        await_for(
            "the XDP program to be gone",
            fanpcap_testkit::await_for::LIMIT,
            || Ok((!veth::has_xdp("fdr1")?).then_some(())),
        )?;
        assert!(shell.find("", "foreign-xdp")?.is_none());
        Ok(())
    })
}

#[test]
#[ignore = "needs root: devices in a namespace"]
fn segments_that_are_merged_are_found_and_left_alone() -> Result<()> {
    within(|_| {
        let shell = Shell::new("fdr1")?;
        shell.run("ethtool -K fdr1 gro on")?;
        let found = shell.mend("merged-frames");
        shell.run("fanpcap tune fdr1 --restore")?;
        let found = found?;
        assert_eq!(
            (found.effect.as_str(), found.fix.as_str()),
            (
                "distorts",
                "fanpcap tune fdr1 --apply    # this alone: ethtool -K fdr1 gro off"
            )
        );
        // Restore the setting, so that doctor finds the problem again. Then the command that
        // changes only this setting must fix it.
        shell.run("ethtool -K fdr1 gro on")?;
        let (_, alone) = found.fix.split_once("# this alone: ").context("a fix")?;
        let left = shell.find(alone, "merged-frames")?;
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a namespace"]
fn a_device_that_xdp_can_t_have_is_found_and_read_by_packet_sockets() -> Result<()> {
    within(|_| {
        let shell = Shell::new("lo")?.set("PCAP_DRIVER", "xdp");
        assert_eq!(shell.mend("no-xdp")?.effect, "costs");
        let shell = Shell::new("fdr1")?.set("PCAP_DRIVER", "xdp");
        assert!(shell.find("", "no-xdp")?.is_none());
        Ok(())
    })
}

/// Lets the host send data to its peer while a member on XDP captures. Returns the length of the
/// longest packet that the member has captured. The kernel does not segment the packets on their
/// way to the peer. Calls `asked` while the member captures.
fn longest_sent(
    hosts: &Hosts,
    scratch: &Scratch,
    asked: impl FnOnce() -> Result<()>,
) -> Result<usize> {
    const BYTES: usize = 1 << 20;
    let program = Program::tcpdump("fdr1", scratch.new_file("pcap"))?;
    let program = program.args(["-Q", "out"]).set("PCAP_DRIVER", "xdp");
    let member = program.start(scratch)?;
    asked()?;
    let [mut own, mut peers] = hosts.connect()?;
    let sink = thread::spawn(move || io::copy(&mut peers, &mut io::sink()));
    own.write_all(&vec![7; BYTES])?;
    drop(own);
    let taken = sink.join().map_err(|_| anyhow!("the sink"))??;
    ensure!(taken == BYTES as u64);
    let all = || member.capture_so_far().packets;
    let packets = await_for("all bytes", fanpcap_testkit::await_for::LIMIT, || {
        let packets = all();
        let bytes: usize = packets.iter().map(|it| it.original_len).sum();
        Ok((bytes > BYTES).then_some(packets))
    })?;
    member.stop()?;
    let longest = packets.iter().map(|it| it.original_len).max();
    longest.context("nothing was captured")
}

/// The host sends through a bridge that has the captured device as a port.
#[test]
#[ignore = "needs root: devices in a namespace"]
fn long_packets_of_a_host_behind_a_bridge_are_found_and_cut() -> Result<()> {
    mounts::where_possible(|| {
        netns::within_new(|| {
            let (hosts, scratch) = (Hosts::on("fdr1")?, Scratch::new()?);
            veth::offloads_on("fdr1")?;
            let neighbours = "192.0.2.1 lladdr 02:00:00:00:00:0a dev fdrb";
            for command in [
                "link add fdrb type bridge",
                "address flush dev fdr1",
                "link set fdr1 master fdrb",
                "link set fdrb up",
                "address add 192.0.2.2/24 dev fdrb",
                &format!("neighbour replace {neighbours}"),
            ] {
                ip(command)?;
            }
            veth::await_up("fdrb")?;
            let shell = Shell::new("fdr1")?;
            let longest = longest_sent(&hosts, &scratch, || {
                let (_, tunes) = shell.run("fanpcap tune fdr1")?;
                let fix = shell.found("unsegmented")?.fix;
                ensure!(tunes.contains(&format!("'{fix}'")), "{fix} in:\n{tunes}");
                Ok(())
            })?;
            ensure!(longest > 1514, "{longest}");
            let longest = longest_sent(&hosts, &scratch, || shell.mend("unsegmented").map(drop))?;
            ensure!(longest == 1514, "{longest}");
            Ok(())
        })
    })
}

#[test]
#[ignore = "needs root: devices in a namespace"]
fn long_packets_are_no_finding_where_only_received_packets_are_captured() -> Result<()> {
    mounts::where_possible(|| {
        netns::within_new(|| {
            let (_hosts, scratch) = (Hosts::on("fdr1")?, Scratch::new()?);
            veth::offloads_on("fdr1")?;
            for (settings, is_found) in [
                ("", true),
                ("steal@fdr1 = force\n", false),
                ("outgoing@fdr1 = no\n", false),
            ] {
                let file = scratch.write("pcap.conf", settings)?.display().to_string();
                let program = Program::tcpdump("fdr1", scratch.new_file("pcap"))?;
                let program = program.set("PCAP_DRIVER", "xdp").set("PCAP_CONFIG", &file);
                let member = program.start(&scratch)?;
                let shell = Shell::new("fdr1")?;
                let found = shell.find("", "unsegmented")?;
                assert_eq!(found.is_some(), is_found, "{settings}");
                let (_, tunes) = shell.run("fanpcap tune fdr1")?;
                assert_eq!(tunes.contains("gso_max_segs"), is_found, "{tunes}");
                member.stop()?;
                // The same by the settings of applications that start later.
                let shell = shell.set("PCAP_DRIVER", "xdp").set("PCAP_CONFIG", &file);
                let found = shell.find("", "unsegmented")?;
                assert_eq!(found.is_some(), is_found, "{settings}");
            }
            Ok(())
        })
    })
}
