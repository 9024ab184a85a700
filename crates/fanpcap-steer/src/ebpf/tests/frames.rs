//! Frames, built from the innermost header outwards.

pub(super) use fanpcap_testkit::frames::*;

pub(super) fn v4_with(options: &[u8], protocol: u8, fragment: u16, rest: &[u8]) -> Vec<u8> {
    let mut packet = v4(protocol, fragment, &[options, rest].concat());
    packet[0] += u8::try_from(options.len() / 4).unwrap();
    packet
}

/// UDP from port 1111 to 2222.
pub(super) fn udp4() -> Vec<u8> {
    ethernet(0x0800, &v4(17, 0, &udp(1111, 2222, &[0; 20])))
}

pub(super) fn tcp4() -> Vec<u8> {
    ethernet(0x0800, &v4(6, 0, &tcp(1111, 2222)))
}

pub(super) fn udp6() -> Vec<u8> {
    ethernet(0x86dd, &v6(17, &udp(1111, 2222, &[0; 20])))
}

pub(super) fn arp() -> Vec<u8> {
    ethernet(0x0806, &[0; 46])
}

/// Frames with all kinds of tunnels, which carry an Ethernet frame or an IPv4 packet.
pub(super) fn tunnels() -> Vec<(&'static str, Vec<u8>)> {
    let packet = v4(17, 0, &udp(3333, 4444, &[0; 20]));
    let ip = by_protocol(&packet).into_iter().chain(by_port(&packet));
    let mut all: Vec<_> = ip.map(|(name, ip)| (name, ethernet(0x0800, &ip))).collect();
    all.push(("ipip in ipv6", ethernet(0x86dd, &v6(4, &packet))));
    all
}

fn by_protocol(packet: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let frame = ethernet(0x0800, packet);
    let gre = |flags: u16, kind: u16, rest: &[u8]| {
        let header = [flags.to_be_bytes(), kind.to_be_bytes()].concat();
        v4(47, 0, &[&header[..], rest].concat())
    };
    let mut third = [0; 20];
    third[11] = 1;
    vec![
        ("ipip", v4(4, 0, packet)),
        ("gre", gre(0, 0x0800, packet)),
        (
            "gre with all",
            gre(0xb000, 0x0800, &[&[0; 12], packet].concat()),
        ),
        (
            "gre mpls",
            gre(0, 0x8847, &[&[0, 0, 0, 64, 0, 0, 1, 64], packet].concat()),
        ),
        ("gre ethernet", gre(0, 0x6558, &frame)),
        ("erspan i", gre(0, 0x88be, &frame)),
        (
            "erspan ii",
            gre(0x1000, 0x88be, &[&[0; 12], &frame[..]].concat()),
        ),
        (
            "erspan iii",
            gre(0x1000, 0x22eb, &[&[0; 16], &frame[..]].concat()),
        ),
        (
            "erspan iii, longer",
            gre(0x1000, 0x22eb, &[&[0; 4], &third[..], &frame].concat()),
        ),
    ]
}

fn by_port(packet: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let frame = ethernet(0x0800, packet);
    let tagged = ethernet(0x8100, &tag(5, 0x88a8, &tag(6, 0x0800, packet)));
    let by_udp = |port, head: &[u8], rest: &[u8]| v4(17, 0, &udp(9, port, &[head, rest].concat()));
    let vxlan = [8, 0, 0, 0, 0, 0, 1, 0];
    vec![
        ("vxlan", by_udp(4789, &vxlan, &frame)),
        ("vxlan, old port", by_udp(8472, &vxlan, &tagged)),
        (
            "geneve",
            by_udp(6081, &[0, 0, 0x65, 0x58, 0, 0, 1, 0], &frame),
        ),
        (
            "geneve, options",
            by_udp(6081, &[1, 0, 8, 0, 0, 0, 1, 0, 9, 9, 9, 9], packet),
        ),
        ("gtp", by_udp(2152, &[0x30, 255, 0, 0, 0, 0, 0, 1], packet)),
        (
            "gtp, number",
            by_udp(2152, &[0x32, 255, 0, 0, 0, 0, 0, 1, 0, 9, 0, 7], packet),
        ),
        (
            "gtp, extensions",
            by_udp(
                2152,
                &[
                    0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 0, 0x85, 2, 0, 0, 0, 0, 0, 0,
                    0,
                ],
                packet,
            ),
        ),
    ]
}
