//! The precedence of the application's call, the environment and the config file, and the snapshot
//! length from each of them.

use anyhow::{Context, Result, ensure};
use fanpcap_group::roster;
use fanpcap_netns::{DEVICE, Wire, finish, on_wire};
use fanpcap_testkit::{Member, Program, traffic, veth};

#[test]
#[ignore = "needs root: run by make test"]
fn without_settings_there_is_no_group() -> Result<()> {
    on_wire(1, |wire| {
        ensure_says(start(wire, &[], "", "0")?, "group -1, snaplen 262144")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_file_sets_a_group() -> Result<()> {
    on_wire(1, |wire| {
        ensure_says(start(wire, &[], "def_group = 11\n", "0")?, "group 11,")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_environment_wins_over_the_file() -> Result<()> {
    on_wire(1, |wire| {
        let member = start(wire, &[("PCAP_GROUP", "12")], "def_group = 11\n", "0")?;
        ensure_says(member, "group 12,")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_call_wins_over_the_environment() -> Result<()> {
    on_wire(1, |wire| {
        let environment = [("PCAP_GROUP", "12"), ("PCAP_FANOUT", "rnd")];
        let program = program(wire, &environment, "def_group = 11\n")?;
        let member = program
            .args([DEVICE, "0", "13", "lb"])
            .start(&wire.scratch)?;
        let same = wire.tcpdump()?.group(13, "lb").start(&wire.scratch)?;
        let frames = traffic::frames(1, &traffic::flows(1, 5), 0..1000)?;
        wire.send(&frames)?;

        // Each member must have exactly half of the packets, as in the call's mode `lb`.
        finish(vec![same], 500)?;
        let said = member.stop()?.said;
        ensure!(
            said.contains("group 13,") && said.contains("500 packets"),
            "{said}"
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_has_a_group_of_its_own() -> Result<()> {
    on_wire(1, |wire| {
        let environment = [("PCAP_GROUP", "12"), ("PCAP_GROUP_vb", "14")];
        ensure_says(start(wire, &environment, "", "0")?, "group 14,")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_devices_group_holds_under_its_other_name() -> Result<()> {
    const OTHER_NAME: &str = "longname0";
    on_wire(1, |wire| {
        let named = veth::ip(&format!(
            "link property add dev {DEVICE} altname {OTHER_NAME}"
        ));
        if let Err(reason) = named {
            println!("SKIP: devices have one name here: {reason}");
            return Ok(());
        }
        let program = program(wire, &[("PCAP_GROUP_vb", "5")], "")?;
        let member = program.args([OTHER_NAME, "0"]).start(&wire.scratch)?;
        ensure_says(member, "group 5,")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn caplen_sets_the_snaplen() -> Result<()> {
    on_wire(1, |wire| {
        ensure_says(start(wire, &[], "caplen = 96\n", "0")?, "snaplen 96")?;
        ensure_says(
            start(wire, &[("PCAP_CAPLEN", "64")], "caplen = 96\n", "0")?,
            "snaplen 64",
        )
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_smaller_of_caplen_and_snaplen_holds() -> Result<()> {
    on_wire(1, |wire| {
        let caplen = [("PCAP_CAPLEN", "64")];
        ensure_says(start(wire, &caplen, "", "60")?, "snaplen 60")?;
        ensure_says(start(wire, &caplen, "", "200")?, "snaplen 64")
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn packets_are_cut_to_caplen() -> Result<()> {
    on_wire(1, |wire| {
        let start = || {
            let program = wire.tcpdump()?.group(7, "hash").set("PCAP_CAPLEN", "64");
            program.start(&wire.scratch)
        };
        let members = vec![start()?, start()?];
        let frames = traffic::frames(2, &traffic::flows(2, 20), 0..1000)?;
        wire.send(&frames)?;

        let captures = finish(members, frames.len())?;
        for packet in captures.iter().flat_map(|capture| &capture.packets) {
            let expected = packet.original_len.min(64);
            ensure!(packet.captured_len == expected, "{packet:?}");
        }
        let longest = captures.iter().flat_map(|capture| &capture.packets);
        let longest = longest
            .map(|packet| packet.original_len)
            .max()
            .context("no packets")?;
        ensure!(longest > 64, "no frame was longer than the limit");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_ring_has_the_size_of_the_setting() -> Result<()> {
    const ASKED: u64 = 32 << 20;
    for engine in ["tpacket", "xdp"] {
        for group in ["", "def_group = 7\n"] {
            on_wire(1, |wire| {
                let alone = match engine {
                    "xdp" => format!("outgoing@{DEVICE} = no\n"),
                    _ => String::new(),
                };
                let config = format!("{group}{alone}ring@{DEVICE} = 32M\n");
                let config = wire.scratch.write("pcap.conf", &config)?;
                // An application's own size, smaller or larger, has no effect.
                for kib in ["1024", "131072"] {
                    let member = wire.tcpdump()?.args(["-B", kib]);
                    let member = member.set("PCAP_CONFIG", &config);
                    let member = member.set("PCAP_DRIVER", engine).start(&wire.scratch)?;
                    let bytes = ring_bytes()?;
                    let tenth = ASKED / 10;
                    ensure!(
                        (ASKED - tenth..=ASKED + tenth).contains(&bytes),
                        "{engine}, {group:?}, -B {kib}: {bytes} bytes"
                    );
                    member.stop()?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Bytes of the largest ring of a packet socket or of a member on an engine.
fn ring_bytes() -> Result<u64> {
    let seen = roster::entries()?;
    let sizes = seen.iter().flat_map(|seen| {
        let ring = seen.socket.ring.as_ref();
        let of_socket = ring.map(|it| u64::from(it.block_size) * u64::from(it.block_count));
        let of_engine = seen.page.as_ref().map(|page| page.ring_bytes);
        [of_socket, of_engine]
    });
    sizes.flatten().max().context("no ring")
}

/// The program `member` with a config file of this text and these variables.
fn program(wire: &Wire, environment: &[(&str, &str)], file: &str) -> Result<Program> {
    let config = wire.scratch.write("pcap.conf", file)?;
    let mut program = Program::new(wire.compile("member")?, "ready")?.set("PCAP_CONFIG", config);
    for (name, value) in environment {
        program = program.set(name, value);
    }
    Ok(program)
}

fn start(wire: &Wire, environment: &[(&str, &str)], file: &str, snaplen: &str) -> Result<Member> {
    program(wire, environment, file)?
        .args([DEVICE, snaplen])
        .start(&wire.scratch)
}

fn ensure_says(member: Member, expected: &str) -> Result<()> {
    let said = member.stop()?.said;
    ensure!(said.contains(expected), "not {expected:?} but:\n{said}");
    Ok(())
}
