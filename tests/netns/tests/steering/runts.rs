//! Runts: frames that end within their headers, down to one byte after the Ethernet header. Fields
//! that are cut off count as absent. All other fields count as present.

use anyhow::{Result, ensure};

use crate::frame::{CLIENT, Frame, SERVER, ip, tcp, turned};
use crate::scene::on_scene;

const MEMBERS: usize = 4;
const LINK: usize = 14;
/// Lengths of the headers of Ethernet and IPv4, and of Ethernet and IPv6. BPF_PROG_TEST_RUN refuses
/// shorter frames, so only real packets can test them.
const SHORTEST: [usize; 2] = [34, 54];
const PORTS: usize = 4;
const TCP_HEADER: usize = 20;

/// A truncated frame of TCP.
#[derive(Clone, Copy, Debug)]
struct Cut {
    ipv4: bool,
    reply: bool,
    len: usize,
}

/// Whether a program passes a frame, given what is left of the frame.
type Passes = fn(&Cut) -> bool;

#[test]
#[ignore = "needs root: run by make test"]
fn what_is_cut_off_is_not_there() -> Result<()> {
    let cuts: Vec<Cut> = cuts();
    let frames: Vec<Frame> = cuts.iter().map(frame).collect();
    let programs: [(&str, Passes); 10] = [
        ("main = steer_to 0", |_| true),
        ("steer_link", |_| true),
        ("filter (eth_type .== 0x0800) >-> steer_to 1", |cut| {
            cut.ipv4
        }),
        ("ip >-> steer_to 1", |cut| cut.ipv4 && cut.has(0)),
        ("ip6 >-> steer_to 1", |cut| !cut.ipv4 && cut.has(0)),
        ("tcp >-> steer_flow", |cut| cut.has(0)),
        ("main = steer_flow", |cut| cut.has(0)),
        ("port 80 >-> steer_flow", |cut| cut.has(PORTS)),
        ("filter (tcp_dest .> 0) >-> steer_p2p", |cut| {
            cut.has(TCP_HEADER)
        }),
        ("steer_key key_5tuple", |cut| cut.has(PORTS)),
    ];
    on_scene(1, |scene| {
        for (program, passes) in programs {
            let outcome = scene.share(program, MEMBERS, &frames)?;
            for (cut, owner) in cuts.iter().zip(&outcome.owners) {
                ensure!(
                    owner.is_some() == passes(cut),
                    "{program}: {cut:?} reached member {owner:?}"
                );
            }
        }
        // Under the mode `flow` no frame is lost.
        scene.share("flow", MEMBERS, &frames)?.ensure_all_came()?;
        let runts = cuts.iter().filter(|cut| !cut.has(0)).count();
        println!(
            "{runts} runts that BPF_PROG_TEST_RUN does not take, under {} programs",
            programs.len() + 1
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_cut_packet_goes_by_what_is_left() -> Result<()> {
    let cuts = cuts();
    let frames: Vec<Frame> = cuts.iter().map(frame).collect();
    on_scene(1, |scene| {
        let outcome = scene.share("main = steer_flow", MEMBERS, &frames)?;
        // Frames without ports are steered by their addresses, frames with ports by their addresses
        // and ports. All frames of one kind must reach one member, in both directions.
        for ipv4 in [true, false] {
            for with_ports in [false, true] {
                let alike = cuts.iter().zip(&outcome.owners).filter(|(cut, _)| {
                    cut.ipv4 == ipv4 && cut.has(0) && cut.has(PORTS) == with_ports
                });
                let mut owners: Vec<_> = alike.map(|(_, owner)| *owner).collect();
                owners.dedup();
                ensure!(
                    owners.len() == 1,
                    "IPv4 {ipv4}, ports {with_ports}: {owners:?}"
                );
            }
        }
        Ok(())
    })
}

impl Cut {
    /// Whether the frame still has this many bytes after the IP header.
    fn has(&self, behind: usize) -> bool {
        self.len >= SHORTEST[usize::from(!self.ipv4)] + behind
    }
}

/// Frames of every length, from one byte after the Ethernet header to the complete frame.
fn cuts() -> Vec<Cut> {
    let mut cuts = Vec::new();
    for ipv4 in [true, false] {
        for reply in [false, true] {
            let whole = SHORTEST[usize::from(!ipv4)] + TCP_HEADER;
            cuts.extend((LINK + 1..=whole).map(|len| Cut { ipv4, reply, len }));
        }
    }
    cuts
}

fn frame(cut: &Cut) -> Frame {
    let ends = if cut.ipv4 {
        ([10, 0, 0, 1].into(), [192, 168, 0, 13].into())
    } else {
        let host = |last| [0xfd00, 1, 0, 0, 0, 0, 0, last].into();
        (host(1), host(2))
    };
    let (ends, ports, macs) = if cut.reply {
        (turned(ends), (80, 40001), (SERVER, CLIENT))
    } else {
        (ends, (40001, 80), (CLIENT, SERVER))
    };
    let mut bytes = ip(ends, &tcp(ports, &[])).between(macs);
    bytes.truncate(cut.len);
    if cut.reply {
        Frame::leaving(bytes)
    } else {
        Frame::arriving(bytes)
    }
}
