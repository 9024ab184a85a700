//! A handle on the XDP engine gets the same frames as a packet socket on the same device, with the
//! same VLAN tags and time stamps, also if a frame has 9000 bytes.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_netns::remains::{leaves_nothing, on_wire_that_ends_clean};
use fanpcap_netns::tagger::{Tagger, are_tags_told};
use fanpcap_netns::{DEVICE, FAR_DEVICE, Wire, on_wire};
use fanpcap_testkit::capture::{self, Packet};
use fanpcap_testkit::frames::{ethernet, tag, udp, v4};
use fanpcap_testkit::traffic::{self, Frame};
use fanpcap_testkit::{Direction, FlowKey, Member, Program, member, veth};

const ENGINES: [&str; 2] = ["xdp", "tpacket"];

/// Ethernet types, and UDP's protocol number in IPv4.
const IPV4: u16 = 0x0800;
const UDP: u8 = 17;
const TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88a8;

#[test]
#[ignore = "needs root: run by make test"]
fn tags_within_frames_stay_there() -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let sent: Vec<_> = (0..)
            .zip(TAGGINGS)
            .map(|(n, tags)| tagged(tags, n))
            .collect();
        for direction in [Direction::Request, Direction::Reply] {
            let members = start(wire, &[])?;
            wire.send_bytes(sent.iter().map(|bytes| (direction, &bytes[..])))?;
            for frames in finish(wire, members, sent.len())? {
                ensure!(frames == sent, "{direction:?}: {frames:x?}");
            }
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn filters_find_tags_within_frames() -> Result<()> {
    const FILTERS: [(&str, usize); 6] = [
        ("vlan", 6),
        ("vlan 5", 4),
        ("not vlan", 1),
        ("udp", 4),
        ("vlan and udp", 3),
        ("vlan 5 and vlan 6", 2),
    ];
    on_wire_that_ends_clean(1, |wire| {
        let sent: Vec<_> = (0..)
            .zip(TAGGINGS)
            .map(|(n, tags)| tagged(tags, n))
            .collect();
        let mut last = Vec::new();
        for (filter, passed) in FILTERS {
            let members = start(wire, &[filter])?;
            wire.send_bytes(sent.iter().map(|bytes| (Direction::Request, &bytes[..])))?;
            let [on_xdp, on_socket] = finish(wire, members, passed).context(filter)?;
            ensure!(on_xdp == on_socket, "{filter}: {on_xdp:x?}, {on_socket:x?}");
            last = on_xdp;
        }
        ensure!(last.iter().all(|frame| sent.contains(frame)));
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn tags_beside_frames_are_put_into_them() -> Result<()> {
    on_wire(1, |wire| {
        let _taggers = [Tagger::on(FAR_DEVICE, 5)?, Tagger::on(DEVICE, 5)?];
        if !are_tags_told()? {
            veth::tags_into_frames(FAR_DEVICE)?;
        }
        leaves_nothing(|| {
            let sent: Vec<_> = (0..10).map(|number| tagged(&[], number)).collect();
            let wanted: Vec<_> = (0..10).map(|number| tagged(&[(TAG, 5)], number)).collect();
            for direction in [Direction::Request, Direction::Reply] {
                for filter in ["vlan 5", "vlan and udp", "udp", ""] {
                    let members = start(wire, &[filter])?;
                    wire.send_bytes(sent.iter().map(|bytes| (direction, &bytes[..])))?;
                    let found = finish(wire, members, sent.len());
                    let found =
                        found.with_context(|| format!("{direction:?}, filter {filter:?}"))?;
                    for (engine, frames) in ENGINES.iter().zip(found) {
                        ensure!(
                            frames == wanted,
                            "{engine}, {direction:?}, {filter:?}: {frames:x?}"
                        );
                    }
                }
            }
            Ok(())
        })
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn frames_of_9000_bytes_are_whole() -> Result<()> {
    const SIZES: [usize; 12] = [
        60, 61, 127, 128, 129, 1514, 1515, 3000, 4096, 8999, 9013, 9014,
    ];
    on_wire_that_ends_clean(1, |wire| {
        for device in [FAR_DEVICE, DEVICE] {
            veth::ip(&format!("link set {device} mtu 9000"))?;
        }
        let sent: Vec<_> = SIZES.into_iter().map(sized).collect();
        for direction in [Direction::Request, Direction::Reply] {
            for snaplen in [262_144, 9013, 1514, 96] {
                let members = start(wire, &["-s", &snaplen.to_string()])?;
                wire.send_bytes(sent.iter().map(|bytes| (direction, &bytes[..])))?;
                let cut = |bytes: &Vec<u8>| bytes[..bytes.len().min(snaplen)].to_vec();
                let cut: Vec<_> = sent.iter().map(cut).collect();
                for frames in finish(wire, members, sent.len())? {
                    ensure!(frames == cut, "{direction:?}, snaplen {snaplen}");
                }
            }
        }
        Ok(())
    })
}

#[test]
#[ignore = "needs root: run by make test"]
fn stamps_rise_and_are_those_of_a_packet_socket() -> Result<()> {
    const FRAMES: u64 = 3000;
    const QUEUES: usize = 2;
    // The number of packets that the scheduler or the hypervisor may delay between the two points
    // at which the packet gets its stamps: the driver's XDP hook, and the packet socket.
    const MAY_BE_LATE: usize = 30;
    on_wire_that_ends_clean(QUEUES, |wire| {
        let members = start(wire, &["--time-stamp-precision=nano"])?;
        let frames = traffic::frames(5, &traffic::flows(5, 10), 0..FRAMES)?;
        for some in frames.chunks(10) {
            wire.send(some)?;
            thread::sleep(Duration::from_millis(10));
        }
        member::wait_for_packets(&members, 2 * frames.len())?;
        let captures = members.into_iter().map(|member| member.stop()?.capture());
        let [on_xdp, on_socket] = <[_; 2]>::try_from(captures.collect::<Result<Vec<_>>>()?)
            .map_err(|_| anyhow::anyhow!("not two captures"))?;
        ensure_rising(&on_xdp.packets, &frames)?;
        let stamps = |packets: &[Packet]| -> BTreeMap<_, _> {
            let stamps = packets.iter().map(|packet| (packet.sequence, packet.stamp));
            stamps.collect()
        };
        let [ours, theirs] = [stamps(&on_xdp.packets), stamps(&on_socket.packets)];
        let apart = |(sequence, stamp): (_, &Duration)| stamp.abs_diff(theirs[sequence]);
        let mut apart: Vec<_> = ours.iter().map(apart).collect();
        apart.sort_unstable();
        let median = apart[apart.len() / 2];
        let nearly_all = apart[apart.len() - 1 - MAY_BE_LATE];
        println!("stamps apart: median {median:?}, all but {MAY_BE_LATE} within {nearly_all:?}");
        ensure!(median < Duration::from_micros(100), "{median:?}");
        ensure!(nearly_all < Duration::from_millis(1), "{apart:?}");
        Ok(())
    })
}

/// Checks that in each direction the stamps of a flow's packets do not decrease. Packets of one
/// flow and direction come from one queue.
fn ensure_rising(packets: &[Packet], frames: &[Frame]) -> Result<()> {
    let mut last = BTreeMap::<(FlowKey, bool), Duration>::new();
    for packet in packets {
        let sequence = packet.sequence.context("a frame that was never sent")?;
        let frame = &frames[usize::try_from(sequence)?];
        let way = (frame.flow.key(), frame.direction == Direction::Reply);
        let before = last.insert(way, packet.stamp);
        ensure!(
            before.is_none_or(|before| before <= packet.stamp),
            "frame {sequence} at {:?}, the previous frame at {before:?}",
            packet.stamp
        );
    }
    Ok(())
}

/// Starts a tcpdump on each engine, without a group.
fn start(wire: &Wire, arguments: &[&str]) -> Result<Vec<Member>> {
    let start = |engine| {
        let program = Program::tcpdump(DEVICE, wire.scratch.file(engine))?;
        let program = program.set("PCAP_DRIVER", engine).args(arguments);
        program.start(&wire.scratch)
    };
    let members = ENGINES.into_iter().map(start).collect::<Result<_>>()?;
    ensure!(veth::has_xdp(DEVICE)?, "the device has no XDP program");
    Ok(members)
}

/// Waits until both tcpdumps have captured `count` frames each, and returns these frames.
fn finish(wire: &Wire, members: Vec<Member>, count: usize) -> Result<[Vec<Vec<u8>>; 2]> {
    let counts = || members.iter().map(Member::captured).collect::<Vec<_>>();
    let waited = member::wait_for_packets(&members, 2 * count);
    waited.with_context(|| format!("{ENGINES:?}: {:?}", counts()))?;
    for member in members {
        member.stop()?;
    }
    let read = |engine| capture::frames(&wire.scratch.file(engine));
    Ok([read(ENGINES[0])?, read(ENGINES[1])?])
}

/// The tags of each frame, outermost first.
const TAGGINGS: [&[(u16, u16)]; 7] = [
    &[],
    &[(TAG, 5)],
    // This tag has a priority and no VLAN.
    &[(TAG, 0xe000)],
    &[(SERVICE_TAG, 5)],
    &[(SERVICE_TAG, 5), (TAG, 6)],
    &[(TAG, 5), (TAG, 6)],
    &[(TAG, 7), (TAG, 5), (TAG, 6)],
];

/// A datagram to the port `number`, in a frame with these tags.
fn tagged(tags: &[(u16, u16)], number: u16) -> Vec<u8> {
    let untagged = (IPV4, v4(UDP, 0, &udp(7, number, &[0x5a; 40])));
    let put = |(kind, packet): (u16, Vec<u8>), &(outer, vlan): &(u16, u16)| {
        (outer, tag(vlan, kind, &packet))
    };
    let (kind, packet) = tags.iter().rev().fold(untagged, put);
    ethernet(kind, &packet)
}

/// A frame of `size` bytes with a datagram. Neighbouring bytes of the payload differ.
fn sized(size: usize) -> Vec<u8> {
    const HEADERS: usize = 14 + 20 + 8;
    let payload: Vec<u8> = (0..=250).cycle().take(size - HEADERS).collect();
    ethernet(IPV4, &v4(UDP, 0, &udp(7, 9, &payload)))
}
