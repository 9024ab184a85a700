//! What a policy's filter sees of tags, directions and lengths.

use super::*;
use fanpcap_bpf::classic::ancillary::*;
use fanpcap_bpf::classic::opcode::*;
use fanpcap_testkit::frames::{ethernet, udp, v4};
use fanpcap_wire::{Frame, Tag};

const ALL: u32 = 262_144;

fn filter(code: Vec<Classic>) -> DeviceFilter {
    let text = String::new();
    DeviceFilter {
        filter: Arc::new(Filter { text, code }),
        ifindex: 7,
    }
}

/// An expression without tags, which libpcap compiles as on a device.
fn compiled(expression: &str) -> DeviceFilter {
    filter(fanpcap_pcap::compile_expression(expression).unwrap())
}

/// Accepts packets of which a load reads this value.
fn loads(load: u16, k: u32, value: u32) -> DeviceFilter {
    filter(vec![
        Classic::new(load, k),
        Classic::jump(JMP_JEQ_K, value, 0, 1),
        Classic::keep(ALL),
        Classic::keep(0),
    ])
}

/// `vlan ID`, as libpcap compiles it on a device.
fn vlan(id: u32) -> DeviceFilter {
    filter(vec![
        Classic::new(LD_B_ABS, SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT),
        Classic::jump(JMP_JEQ_K, 1, 0, 4),
        Classic::new(LD_H_ABS, SKF_AD_OFF + SKF_AD_VLAN_TAG),
        Classic::new(ALU_AND_K, 0x0fff),
        Classic::jump(JMP_JEQ_K, id, 0, 1),
        Classic::keep(ALL),
        Classic::keep(0),
    ])
}

fn plain() -> Vec<u8> {
    ethernet(0x0800, &v4(17, 0, &udp(5, 9, &[0; 40])))
}

/// The frame with a tag of VLAN 7 and of a priority.
fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0x20, 7], &frame[12..]].concat()
}

fn beside(frame: &[u8]) -> Packet<'_> {
    let tag = Some(Tag {
        tpid: ETH_P_8021Q,
        tci: 0x2007,
    });
    Packet {
        frame: Frame { bytes: frame, tag },
        ..Packet::of(frame)
    }
}

fn sent(packet: Packet<'_>) -> Packet<'_> {
    Packet {
        is_sent: true,
        ..packet
    }
}

/// A source may leave a tag in the frame, or have it beside the frame.
#[test]
fn the_outermost_tag_is_read_beside_the_frame_wherever_it_is() {
    let frame = plain();
    let inside = tagged(&frame);
    let packets = [Packet::of(&frame), Packet::of(&inside), beside(&frame)];
    let (len, none) = (u32::try_from(frame.len()).unwrap(), [false; 3]);
    for (what, filter, expected) in [
        ("udp port 9", compiled("udp port 9"), [true; 3]),
        ("not udp port 9", compiled("not udp port 9"), none),
        ("vlan 7", vlan(7), [false, true, true]),
        ("vlan 8", vlan(8), none),
        ("protocol", loads(LD_W_ABS, SKF_AD_OFF, 0x0800), [true; 3]),
        ("length", loads(LD_W_LEN, 0, len), [true; 3]),
    ] {
        let allowed = packets.map(|it| filter.allowed(&it));
        assert_eq!(allowed.map(|it| it.is_some()), expected, "{what}");
        let whole = allowed.into_iter().zip(&packets);
        let whole = whole.filter_map(|(it, packet)| Some((it?, packet.frame.bytes)));
        whole.for_each(|(it, bytes)| assert_eq!(it, bytes, "{what}"));
    }
}

#[test]
fn further_tags_and_those_that_the_host_has_written_stay_in_the_frame() {
    let frame = plain();
    let inside = tagged(&frame);
    let packets = [
        beside(&inside),
        sent(Packet::of(&inside)),
        sent(beside(&frame)),
    ];
    for (filter, expected) in [
        (compiled("udp port 9"), [false, false, true]),
        (vlan(7), [true, false, true]),
        (loads(LD_H_ABS, 12, 0x8100), [true, true, false]),
    ] {
        let allowed = packets.map(|it| filter.allowed(&it).is_some());
        assert_eq!(allowed, expected);
    }
}

#[test]
fn a_filter_reads_the_packets_direction_device_and_protocol() {
    let frame = plain();
    let length = ethernet(40, &[0; 40]);
    let packets = [
        Packet::of(&frame),
        sent(Packet::of(&frame)),
        Packet::of(&length),
    ];
    for (offset, value, expected) in [
        (SKF_AD_PKTTYPE, 4, [false, true, false]),
        (SKF_AD_IFINDEX, 7, [true; 3]),
        (SKF_AD_HATYPE, 1, [true; 3]),
        (SKF_AD_PROTOCOL, 4, [false, false, true]),
        (SKF_AD_VLAN_TAG_PRESENT, 0, [true; 3]),
    ] {
        let filter = loads(LD_W_ABS, SKF_AD_OFF + offset, value);
        let allowed = packets.map(|it| filter.allowed(&it).is_some());
        assert_eq!(allowed, expected, "{offset}");
    }
}

/// As the kernel does, and as members' own filters do.
#[test]
fn a_filter_that_keeps_less_cuts_the_frame_and_does_not_count_its_tag() {
    let frame = plain();
    let inside = tagged(&frame);
    for (kept, expected) in [
        (0, [None; 3]),
        (1, [Some(1); 3]),
        (40, [Some(40), Some(44), Some(40)]),
        (
            u32::MAX,
            [Some(frame.len()), Some(inside.len()), Some(frame.len())],
        ),
    ] {
        let filter = filter(vec![Classic::keep(kept)]);
        let packets = [Packet::of(&frame), Packet::of(&inside), beside(&frame)];
        let lens = packets.map(|it| filter.allowed(&it).map(<[u8]>::len));
        assert_eq!(lens, expected, "{kept}");
    }
}

#[test]
fn no_frame_is_too_short() {
    let inside = tagged(&plain());
    for len in 0..18 {
        let bytes = &inside[..len];
        for packet in [Packet::of(bytes), beside(bytes), sent(Packet::of(bytes))] {
            assert_eq!(compiled("udp").allowed(&packet), None);
            let all = filter(vec![Classic::keep(ALL)]).allowed(&packet);
            assert_eq!(all, Some(bytes));
        }
    }
}
