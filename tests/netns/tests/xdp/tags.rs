//! Frames whose VLAN tag is not in the frame's bytes but in the skb, as a VLAN device with offload
//! at the peer sends them. The members of all groups must get frames that contain the tags. The
//! host must get each packet as it would without a capture.

use anyhow::{Context, Result, ensure};
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::tagger::{Tagger, are_tags_told};
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire, on_wire};
use fanpcap_testkit::frames::{ethernet, tag, udp, v4};
use fanpcap_testkit::member::wait_for_packets;
use fanpcap_testkit::veth::ip;
use fanpcap_testkit::{Direction, Member, Program, capture};

use crate::scene::start_as;

const IPV4: u16 = 0x0800;
const UDP: u8 = 17;
const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;
const FRAMES: u16 = 60;

/// Datagrams of several flows and lengths. Every third datagram also contains a tag.
fn frames() -> Vec<Vec<u8>> {
    let frame = |number: u16| {
        let payload = vec![0x5a; usize::from(number) * 20];
        let packet = v4(UDP, number % 7, &udp(7, number, &payload));
        match number % 3 {
            0 => ethernet(TAG, &tag(6, IPV4, &packet)),
            _ => ethernet(IPV4, &packet),
        }
    };
    (0..FRAMES).map(frame).collect()
}

/// The frames after a tag is inserted.
fn tagged(protocol: u16, vlan: u16) -> Vec<Vec<u8>> {
    let tag = [protocol.to_be_bytes(), vlan.to_be_bytes()].concat();
    let frames = frames().into_iter();
    frames
        .map(|it| [&it[..12], &tag, &it[12..]].concat())
        .collect()
}

fn send(wire: &Wire) -> Result<()> {
    let frames = frames();
    wire.send_bytes(frames.iter().map(|it| (Direction::Request, &it[..])))
}

/// A tcpdump on `engine` that writes its packets to the file `file`.
fn tcpdump(wire: &Wire, file: &str, engine: &str) -> Result<Program> {
    let program = Program::tcpdump(DEVICE, wire.scratch.file(file))?;
    Ok(program.set("PCAP_DRIVER", engine))
}

/// The frames in these files, after the members have written `count` frames.
fn finish(wire: &Wire, members: Vec<Member>, count: usize, files: &[&str]) -> Result<Vec<Vec<u8>>> {
    wait_for_packets(&members, count).with_context(|| format!("{files:?}"))?;
    for member in members {
        member.stop()?;
    }
    let all = files
        .iter()
        .map(|it| capture::frames(&wire.scratch.file(it)));
    Ok(all.collect::<Result<Vec<_>>>()?.concat())
}

#[test]
#[ignore = "needs root: run by make test"]
fn each_group_and_the_host_have_the_tags() -> Result<()> {
    if !are_tags_told()? {
        println!("SKIP: the kernel tells XDP programs no tags");
        return Ok(());
    }
    for (protocol, vlan) in [(TAG, 5), (SERVICE_TAG, 0xe00f), (TAG, 0x2000)] {
        on_wire_that_ends_clean(2, |wire| {
            let _tagger = Tagger::of(FAR_DEVICE, protocol, vlan)?;
            let socket = tcpdump(wire, "socket", "tpacket")?.start(&wire.scratch)?;
            let alone = start_as(wire, tcpdump(wire, "alone", "xdp")?)?;
            // First the device has one group, then three.
            send(wire)?;
            let found = finish(wire, vec![alone], frames().len(), &["alone"])?;
            ensure!(found == tagged(protocol, vlan), "one group: {found:x?}");
            let alone = start_as(wire, tcpdump(wire, "alone", "xdp")?)?;
            let short = start_as(wire, tcpdump(wire, "short", "xdp")?.args(["-s", "17"]))?;
            let share = |file| start_as(wire, tcpdump(wire, file, "xdp")?.group(7, "flow"));
            let group = vec![share("first")?, share("second")?];
            send(wire)?;
            let wanted = tagged(protocol, vlan);
            let found = finish(wire, vec![alone], wanted.len(), &["alone"])?;
            ensure!(found == wanted, "several groups: {found:x?}");
            let found = finish(wire, vec![short], wanted.len(), &["short"])?;
            ensure!(
                found
                    .iter()
                    .zip(&wanted)
                    .all(|(it, whole)| it == &whole[..17])
            );
            let mut found = finish(wire, group, wanted.len(), &["first", "second"])?;
            let mut sorted = wanted.clone();
            found.sort();
            sorted.sort();
            ensure!(found == sorted, "a group: {found:x?}");
            let found = finish(wire, vec![socket], 2 * wanted.len(), &["socket"])?;
            ensure!(
                found == [&wanted[..], &wanted].concat(),
                "the host: {found:x?}"
            );
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root: run by make test"]
fn stolen_packets_have_their_tags() -> Result<()> {
    if !are_tags_told()? {
        println!("SKIP: the kernel tells XDP programs no tags");
        return Ok(());
    }
    on_wire_that_ends_clean(1, |wire| {
        let _tagger = Tagger::of(FAR_DEVICE, SERVICE_TAG, 5)?;
        let host = tcpdump(wire, "socket", "tpacket")?.start(&wire.scratch)?;
        let config = wire.scratch.new_file("pcap.conf");
        std::fs::write(&config, "driver@vb = xdp\nsteal@vb = yes\n")?;
        let program = tcpdump(wire, "stolen", "xdp")?.set("PCAP_CONFIG", config);
        let member = start_as(wire, program)?;
        send(wire)?;
        let found = finish(wire, vec![member], frames().len(), &["stolen"])?;
        ensure!(found == tagged(SERVICE_TAG, 5), "{found:x?}");
        ensure!(
            host.captured() == 0,
            "{} packets reached the host",
            host.captured()
        );
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn the_hosts_vlan_device_has_its_packets_once() -> Result<()> {
    on_wire(1, |wire| {
        if ip("link add link vb name vb.5 type vlan id 5").is_err() {
            println!("SKIP: the kernel has no VLAN devices");
            return Ok(());
        }
        ip("link set vb.5 up")?;
        let _tagger = Tagger::on(FAR_DEVICE, 5)?;
        let host = Program::tcpdump("vb.5", wire.scratch.file("host"))?.start(&wire.scratch)?;
        let members = ["first", "second"].map(|it| start_as(wire, tcpdump(wire, it, "xdp")?));
        let members = members.into_iter().collect::<Result<Vec<_>>>()?;
        send(wire)?;
        let found = finish(wire, vec![host], frames().len(), &["host"])?;
        ensure!(found == frames(), "{found:x?}");
        finish(wire, members, 2 * frames().len(), &[])?;
        Ok(())
    })
}
