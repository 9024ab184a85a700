//! Applications that write into their packets (`c/writes.c`), which libpcap's ring permits. Each
//! packet must be delivered as it was sent, whatever the application wrote into the previous one.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{DEVICE, Wire, ensure_each_once, on_wire, wait_for_shares};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::frames::ethernet;
use fanpcap_testkit::{Capture, Direction, Member, Program, capture, member, traffic};

use crate::two_wires::on_two_wires;

/// The engine, and the arguments of `c/writes.c`. In a ring of blocks, the byte after a packet may
/// belong to the next packet's header. An application that writes there gets the error of a
/// corrupted ring, also with the system's libpcap. So on packet sockets, `behind` is tried only
/// with `next`.
const WAYS: [(&str, &[&str]); 8] = [
    ("tpacket", &[]),
    ("tpacket", &["immediate"]),
    ("tpacket", &["next", "behind"]),
    ("tpacket", &["immediate", "next", "behind"]),
    ("xdp", &[]),
    ("xdp", &["behind"]),
    ("xdp", &["immediate", "behind"]),
    ("xdp", &["next", "behind"]),
];

/// Frames of all lengths, with an ethertype for experiments.
fn frames() -> Vec<Vec<u8>> {
    let frame = |len: usize| {
        let payload: Vec<u8> = (14..len).map(|at| (at ^ len).to_le_bytes()[0]).collect();
        ethernet(0x88b5, &payload)
    };
    (60..=1514).map(frame).collect()
}

fn writer(wire: &Wire, file: &str, arguments: &[&str]) -> Result<Program> {
    let program = Program::new(wire.compile("writes")?, "ready")?;
    Ok(program
        .arg(DEVICE)
        .arg(wire.scratch.file(file))
        .args(arguments))
}

/// Waits until these files together have `count` packets.
fn await_packets(files: &[&Path], count: usize) -> Result<()> {
    await_for("packets in the files", LIMIT, || {
        let found: usize = files.iter().map(|it| Capture::count_so_far(it)).sum();
        Ok((found >= count).then_some(()))
    })
}

fn stop(members: Vec<Member>) -> Result<()> {
    members.into_iter().try_for_each(|it| it.stop().map(drop))
}

#[test]
#[ignore = "needs root: run by make test"]
fn each_packet_comes_as_it_was_sent_to_who_writes_into_packets() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let sent = frames();
        for (engine, arguments) in WAYS {
            let way = format!("{engine} {arguments:?}");
            let member = writer(wire, &way, arguments)?.set("PCAP_DRIVER", engine);
            let member = member.start(&wire.scratch)?;
            wire.send_bytes(sent.iter().map(|it| (Direction::Request, &it[..])))?;
            let file = wire.scratch.file(&way);
            await_packets(&[&file], sent.len()).with_context(|| way.clone())?;
            stop(vec![member]).with_context(|| way.clone())?;
            ensure!(capture::frames(&file)? == sent, "{way}");
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn who_takes_a_dead_members_ring_over_writes_into_its_packets() -> Result<()> {
    for engine in ["tpacket", "xdp"] {
        on_wire(1, |wire| {
            let start = |file| {
                let member = writer(wire, file, &[])?.set("PCAP_DRIVER", engine);
                member.group(7, "flow").start(&wire.scratch)
            };
            let (dead, taker) = (start("dead")?, start("taker")?);
            member::wait_for_members(7, 2)?;
            wait_for_shares()?;
            dead.signal("STOP")?;
            let frames = traffic::frames(1, &traffic::flows(1, 40), 0..2000)?;
            wire.send_as_tap(&frames)?;
            dead.signal("KILL")?;
            dead.wait()?;
            let files = ["dead", "taker"].map(|file| wire.scratch.file(file));
            await_packets(&[&files[0], &files[1]], frames.len()).context(engine)?;
            stop(vec![taker]).context(engine)?;
            let captures = files.map(|file| Capture::read_so_far(&file));
            ensure!(captures[1].packets.len() > frames.len() / 2);
            ensure_each_once(&captures, &frames)
        })?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_handle_on_two_devices_lets_its_application_write() -> Result<()> {
    for engine in ["tpacket", "xdp"] {
        on_two_wires(|wires| {
            let file = wires.scratch.file("both");
            let member = wires.program("writes", &["f1^f2"])?.arg(&file);
            let member = member.set("PCAP_DRIVER", engine).start(&wires.scratch)?;
            for number in 0..200 {
                wires.send(number % 2, number)?;
            }
            await_packets(&[&file], 200).context(engine)?;
            stop(vec![member]).context(engine)?;
            let numbers: Vec<u8> = capture::frames(&file)?.iter().map(|it| it[14]).collect();
            ensure!(
                numbers == (0..200).collect::<Vec<_>>(),
                "{engine}: {numbers:?}"
            );
            Ok(())
        })?;
    }
    Ok(())
}
