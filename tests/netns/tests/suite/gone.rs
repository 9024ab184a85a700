//! A device that is removed: all packets that came before are delivered, and then the error.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire, on_wire};
use fanpcap_testkit::traffic;
use fanpcap_testkit::{Capture, Member, Program, veth};

const WAYS: [&str; 7] = [
    "fileno-poll",
    "fileno-select",
    "fileno-epoll",
    "fileno-edge",
    "fd-poll",
    "fd-epoll",
    "blind",
];

const FRAMES: u64 = 20;

/// Starts tcpdump, with its time-out of one second, and handles that wait in each of [`WAYS`]. Each
/// handle gets all packets. With a `group`, each handle is in a group of its own.
fn start(wire: &Wire, engine: &str, group: Option<u16>) -> Result<Vec<(String, Member)>> {
    let waits = wire.compile("waits")?;
    let mut members = Vec::new();
    for (number, way) in (0_u16..).zip(["tcpdump"].into_iter().chain(WAYS)) {
        let name = format!("{way} on {engine}, group {group:?}");
        let file = wire.scratch.file(&format!("{}.pcap", members.len()));
        let program = match way {
            "tcpdump" => Program::tcpdump(DEVICE, file)?,
            way => Program::new(&waits, "ready")?
                .arg(DEVICE)
                .arg(file)
                .arg(way),
        };
        let program = program.set("PCAP_DRIVER", engine);
        let program = match group {
            Some(group) => program.set("PCAP_GROUP", (group + number).to_string()),
            None => program,
        };
        let member = program.start(&wire.scratch);
        members.push((name.clone(), member.context(name)?));
    }
    Ok(members)
}

#[test]
#[ignore = "needs root: run by make test"]
fn packets_in_the_ring_are_delivered_before_the_error() -> Result<()> {
    for engine in ["tpacket", "xdp"] {
        for group in [None, Some(7)] {
            on_wire(1, |wire| {
                let members = start(wire, engine, group)?;
                thread::sleep(Duration::from_millis(500));
                wire.send_as_tap(&traffic::frames(1, &traffic::flows(1, 5), 0..FRAMES)?)?;
                veth::ip(&format!("link delete {FAR_DEVICE}"))?;
                for (number, (name, member)) in members.into_iter().enumerate() {
                    let ended = member.wait().with_context(|| name.clone())?;
                    let said = ended.said.contains("The interface disappeared");
                    ensure!(said, "{name}: {}", ended.said);
                    let file = wire.scratch.file(&format!("{number}.pcap"));
                    let count = Capture::count_so_far(&file);
                    ensure!(count as u64 == FRAMES, "{name}: {count}, {}", ended.said);
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}
