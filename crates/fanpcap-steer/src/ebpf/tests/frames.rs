//! Frames, from inside to outside.

pub(super) const SOURCE: [u8; 4] = [10, 0, 0, 1];
pub(super) const DESTINATION: [u8; 4] = [10, 0, 0, 2];
pub(super) const MAC_SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(super) const MAC_DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// An address that ends with this number.
pub(super) fn address6(number: u8) -> [u8; 16] {
    let mut address = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    address[15] = number;
    address
}

pub(super) fn ethernet(kind: u16, rest: &[u8]) -> Vec<u8> {
    [&MAC_DESTINATION[..], &MAC_SOURCE, &kind.to_be_bytes(), rest].concat()
}

/// What is behind a type: a tag and another.
pub(super) fn tag(id: u16, kind: u16, rest: &[u8]) -> Vec<u8> {
    [&id.to_be_bytes()[..], &kind.to_be_bytes(), rest].concat()
}

pub(super) fn ip4(protocol: u8, rest: &[u8]) -> Vec<u8> {
    ip4_of(protocol, 0, &[], rest)
}

/// With flags and offset, and options.
pub(super) fn ip4_of(protocol: u8, fragment: u16, options: &[u8], rest: &[u8]) -> Vec<u8> {
    let words = 5 + options.len() / 4;
    let len = u16::try_from(words * 4 + rest.len()).unwrap();
    let mut header = vec![0x40 | u8::try_from(words).unwrap(), 0x2e];
    header.extend(len.to_be_bytes());
    header.extend([0, 7]);
    header.extend(fragment.to_be_bytes());
    header.extend([64, protocol, 0, 0]);
    [&header[..], &SOURCE, &DESTINATION, options, rest].concat()
}

pub(super) fn ip6(next: u8, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
    let head = [0x62, 0xe0, 0, 0, len[0], len[1], next, 63];
    [&head[..], &address6(1), &address6(2), rest].concat()
}

pub(super) fn udp(source: u16, destination: u16, rest: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + rest.len()).unwrap().to_be_bytes();
    [
        &source.to_be_bytes()[..],
        &destination.to_be_bytes(),
        &len,
        &[0, 0],
        rest,
    ]
    .concat()
}

pub(super) fn tcp(source: u16, destination: u16) -> Vec<u8> {
    [
        &source.to_be_bytes()[..],
        &destination.to_be_bytes(),
        &[0; 8],
        &[0x50, 2],
        &[0; 6],
    ]
    .concat()
}

/// UDP from port 1111 to 2222.
pub(super) fn udp4() -> Vec<u8> {
    ethernet(0x0800, &ip4(17, &udp(1111, 2222, &[0; 20])))
}

pub(super) fn tcp4() -> Vec<u8> {
    ethernet(0x0800, &ip4(6, &tcp(1111, 2222)))
}

pub(super) fn udp6() -> Vec<u8> {
    ethernet(0x86dd, &ip6(17, &udp(1111, 2222, &[0; 20])))
}

pub(super) fn arp() -> Vec<u8> {
    ethernet(0x0806, &[0; 46])
}

/// All ways to carry an Ethernet frame or an IPv4 packet.
pub(super) fn tunnels() -> Vec<(&'static str, Vec<u8>)> {
    let packet = ip4(17, &udp(3333, 4444, &[0; 20]));
    let ip = by_protocol(&packet).into_iter().chain(by_port(&packet));
    let mut all: Vec<_> = ip.map(|(name, ip)| (name, ethernet(0x0800, &ip))).collect();
    all.push(("ipip in ipv6", ethernet(0x86dd, &ip6(4, &packet))));
    all
}

fn by_protocol(packet: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let frame = ethernet(0x0800, packet);
    let gre = |flags: u16, kind: u16, rest: &[u8]| {
        let header = [flags.to_be_bytes(), kind.to_be_bytes()].concat();
        ip4(47, &[&header[..], rest].concat())
    };
    let mut third = [0; 20];
    third[11] = 1;
    vec![
        ("ipip", ip4(4, packet)),
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
    let by_udp = |port, head: &[u8], rest: &[u8]| ip4(17, &udp(9, port, &[head, rest].concat()));
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
