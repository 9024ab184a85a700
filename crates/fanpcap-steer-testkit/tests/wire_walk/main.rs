//! Tests each step of the walk over a frame's headers (`Layers`), and its limits, on hand-made
//! frames.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

mod tunnels;

use fanpcap_testkit::frames::{MAC_DESTINATION, MAC_SOURCE, TCP, ethernet, fragment, udp, v4, v6};
use fanpcap_wire::{
    Endpoint, Erspan, FlowKey, Frame, GTP_EXTENSIONS_MAX, LABELS_MAX, Layers, Ports, TAGS_MAX, Tag,
};
use std::net::Ipv4Addr;

fn frame(bytes: &[u8]) -> Frame<'_> {
    Frame { bytes, tag: None }
}

/// Source and destination port of the packet that [`Layers::ip`] returns.
fn ports(bytes: &[u8]) -> Option<(u16, u16)> {
    let ports = Layers::of(&frame(bytes)).ip()?.ports()?;
    Some((ports.source, ports.destination))
}

/// Source and destination port of the carried packet.
fn inner_ports(bytes: &[u8]) -> Option<(u16, u16)> {
    let ports = Layers::of(&frame(bytes)).inner()?.ip()?.ports()?;
    Some((ports.source, ports.destination))
}

const HTTP: Option<(u16, u16)> = Some((8080, 80));

#[test]
fn less_than_ethernet_is_nothing() {
    let bytes = ethernet(0x0800, &[]);
    let tag = Some(Tag {
        tpid: 0x8100,
        tci: 5,
    });
    let layers = Layers::of(&Frame {
        bytes: &bytes[..13],
        tag,
    });
    assert!(layers.link().is_none() && layers.tag().is_none());
    let layers = Layers::of(&Frame { bytes: &bytes, tag });
    assert_eq!(layers.link().unwrap().destination(), MAC_DESTINATION);
    assert_eq!(layers.link().unwrap().source(), MAC_SOURCE);
    assert_eq!(layers.ether_type(), Some(0x0800));
    assert_eq!(layers.tag().unwrap().id(), 5);
}

#[test]
fn tags_are_passed_over_as_far_as_allowed() {
    let tagged = |count: usize| {
        let mut bytes = [MAC_DESTINATION, MAC_SOURCE].concat();
        for id in 1..=u8::try_from(count).unwrap() {
            bytes.extend([0x81, 0, 0x20, id]);
        }
        bytes.extend([8, 0]);
        bytes.extend(v4(6, 0, &TCP));
        bytes
    };
    for count in 0..=TAGS_MAX {
        assert_eq!(ports(&tagged(count)), HTTP, "{count} tags");
    }
    let many = tagged(TAGS_MAX + 1);
    assert_eq!(ports(&many), None);
    let whole = frame(&many);
    let layers = Layers::of(&whole);
    assert_eq!(layers.ether_type(), Some(0x8100));
    assert_eq!(
        layers
            .link()
            .unwrap()
            .tags()
            .map(|tag| tag.id())
            .collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );

    let beside = Some(Tag {
        tpid: 0x88a8,
        tci: 9,
    });
    let many = tagged(TAGS_MAX);
    let layers = Layers::of(&Frame {
        bytes: &many,
        tag: beside,
    });
    assert_eq!(layers.tag(), beside);
    assert_eq!(layers.ether_type(), Some(0x8100));
    assert!(layers.ip().is_none());
    let few = tagged(TAGS_MAX - 1);
    assert!(
        Layers::of(&Frame {
            bytes: &few,
            tag: beside
        })
        .ip()
        .is_some()
    );
}

#[test]
fn behind_a_tag_that_is_cut_off_is_no_type() {
    let bytes = ethernet(0x8100, &[0, 7, 8, 0]);
    let whole = frame(&bytes);
    assert_eq!(
        Layers::of(&whole).tag(),
        Some(Tag {
            tpid: 0x8100,
            tci: 7
        })
    );
    assert_eq!(Layers::of(&whole).ether_type(), Some(0x0800));
    let cut = frame(&bytes[..17]);
    assert_eq!(Layers::of(&cut).tag(), None);
    assert_eq!(Layers::of(&cut).ether_type(), None);
}

#[test]
fn pppoe_and_labels_are_passed_over() {
    let session = |kind: [u8; 2], protocol: u8| {
        let header = [kind[0], kind[1], 0, 3, 0, 62, 0, protocol];
        ethernet(0x8864, &[&header[..], &v4(6, 0, &TCP)].concat())
    };
    assert_eq!(ports(&session([0x11, 0], 0x21)), HTTP);
    assert_eq!(ports(&session([0x11, 0], 0x57)), None, "says IPv6");
    assert_eq!(ports(&session([0x11, 9], 0x21)), None, "no session's");
    assert_eq!(ports(&session([0x21, 0], 0x21)), None, "another version");

    let labelled = |count: usize| {
        let mut stack = Vec::new();
        for label in 1..=count {
            stack.extend([0, 0, 0x10 | u8::from(label == count), 64]);
        }
        ethernet(0x8847, &[stack, v6(6, &TCP)].concat())
    };
    for count in 1..=LABELS_MAX {
        assert_eq!(ports(&labelled(count)), HTTP, "{count} labels");
    }
    assert_eq!(ports(&labelled(LABELS_MAX + 1)), None);
}

#[test]
fn ipv4_is_read_with_options_and_fragments() {
    let mut with_options = v4(6, 0, &[&[0; 8][..], &TCP].concat());
    with_options[0] = 0x47;
    assert_eq!(ports(&ethernet(0x0800, &with_options)), HTTP);
    with_options[0] = 0x44;
    assert_eq!(ports(&ethernet(0x0800, &with_options)), None, "too short");
    with_options[0] = 0x67;
    assert_eq!(
        ports(&ethernet(0x0800, &with_options)),
        None,
        "another version"
    );
    assert_eq!(
        ports(&ethernet(0x86dd, &v4(6, 0, &TCP))),
        None,
        "another type"
    );

    let kind = |field| {
        let bytes = ethernet(0x0800, &v4(6, field, &TCP));
        let whole = frame(&bytes);
        let layers = Layers::of(&whole);
        let ip = layers.ip().unwrap();
        assert_eq!((ip.tos(), ip.ttl(), ip.total_len()), (0xb8, 64, 40));
        assert_eq!((ip.id, ip.flags_and_offset), (Some(0x1234), field));
        let is_there = ip.ports().is_some();
        (
            ip.is_fragment(),
            ip.is_first_fragment(),
            ip.is_later_fragment(),
            is_there,
        )
    };
    assert_eq!(kind(0x4000), (false, false, false, true));
    assert_eq!(kind(0x2000), (true, true, false, true));
    assert_eq!(kind(0x2001), (true, false, true, false));
    assert_eq!(kind(0x0001), (true, false, true, false));
}

#[test]
fn ipv6_is_read_with_extension_headers() {
    let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let chain = |count: usize| {
        let mut headers = Vec::new();
        for header in 1..=count {
            headers.extend(options(if header == count { 6 } else { 60 }));
        }
        ethernet(
            0x86dd,
            &v6(
                if count == 0 { 6 } else { 60 },
                &[headers, TCP.to_vec()].concat(),
            ),
        )
    };
    for count in 0..6 {
        assert_eq!(ports(&chain(count)), HTTP, "{count} headers");
    }
    let many = chain(6);
    assert_eq!(
        ports(&many),
        None,
        "the ports are behind the last header that the walk reads"
    );
    assert_eq!(Layers::of(&frame(&many)).ip().unwrap().protocol, 6);
    let more = chain(7);
    assert_eq!(Layers::of(&frame(&more)).ip().unwrap().protocol, 60);

    // The length of an authentication header is in units of 4 bytes, minus 2.
    let authentication = [&[6, 4][..], &[0; 22], &TCP].concat();
    assert_eq!(ports(&ethernet(0x86dd, &v6(51, &authentication))), HTTP);
    let routing = [&[6, 1][..], &[0; 14], &TCP].concat();
    assert_eq!(ports(&ethernet(0x86dd, &v6(43, &routing))), HTTP);

    let cut = ethernet(0x86dd, &v6(60, &options(6)[..7]));
    let whole = frame(&cut);
    let layers = Layers::of(&whole);
    assert_eq!(layers.ip().unwrap().protocol, 60);
    assert!(layers.ip().unwrap().transport().is_none());
}

#[test]
fn ipv6_fragments_are_as_ipv4s() {
    let kind = |packet: &[u8]| {
        let bytes = ethernet(0x86dd, &v6(44, packet));
        let whole = frame(&bytes);
        let layers = Layers::of(&whole);
        let ip = *layers.ip().unwrap();
        assert_eq!(ip.id, Some(0x5678));
        (ip.flags_and_offset, ip.protocol, ip.ports().is_some())
    };
    assert_eq!(kind(&fragment(6, 0x0001, &TCP)), (0x2000, 6, true));
    assert_eq!(kind(&fragment(6, 0x05c9, &TCP)), (0x2000 | 185, 6, false));
    assert_eq!(
        kind(&fragment(6, 0x0000, &TCP)),
        (0, 6, true),
        "a whole datagram"
    );
    let options = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &TCP].concat();
    assert_eq!(kind(&fragment(60, 0x0001, &options)), (0x2000, 6, true));
    assert_eq!(
        kind(&fragment(60, 0x0008, &options)),
        (1, 60, false),
        "a later fragment has no header"
    );
    let twice = fragment(44, 0x0001, &fragment(6, 0x0008, &TCP));
    assert_eq!(
        kind(&twice),
        (1, 6, false),
        "the last fragment header counts"
    );
}

#[test]
fn ports_are_there_without_the_rest_of_the_header() {
    for protocol in [6, 17, 33, 132, 136] {
        let bytes = ethernet(0x0800, &v4(protocol, 0, &TCP));
        assert_eq!(ports(&bytes), HTTP, "protocol {protocol}");
        assert_eq!(ports(&bytes[..14 + 20 + 4]), HTTP);
        assert_eq!(ports(&bytes[..14 + 20 + 3]), None);
    }
    assert_eq!(ports(&ethernet(0x0800, &v4(50, 0, &TCP))), None);
    let bytes = ethernet(0x0800, &v4(6, 0, &TCP));
    let whole = frame(&bytes);
    let layers = Layers::of(&whole);
    let tcp = layers.ip().unwrap().tcp().unwrap();
    assert_eq!(
        (tcp.header_len(), tcp.flags(), tcp.sequence()),
        (24, 0x12, 7)
    );
    let cut = frame(&bytes[..14 + 20 + 19]);
    assert!(Layers::of(&cut).ip().unwrap().tcp().is_none());
}

#[test]
fn an_icmp_error_belongs_to_what_it_quotes() {
    let end = |last, port| Endpoint {
        address: Ipv4Addr::new(10, 0, 0, last).into(),
        port,
    };
    let key = |bytes: &[u8]| FlowKey::of(Layers::of(&frame(bytes)).ip().unwrap());
    let error = |kind: u8, quote: &[u8]| {
        let message = [&[kind, 1, 0, 0, 0, 0, 0, 0][..], quote].concat();
        ethernet(0x0800, &v4(1, 0, &message))
    };
    let quote = v4(6, 0, &TCP[..8]);
    let flow = FlowKey::new(end(2, 80), end(1, 8080), 6);
    for kind in [3, 4, 5, 11, 12] {
        assert_eq!(key(&error(kind, &quote)), flow, "type {kind}");
    }
    let own = FlowKey::new(end(1, 0), end(2, 0), 1);
    assert_eq!(key(&error(8, &quote)), own);
    assert_eq!(
        key(&error(3, &quote[..19])),
        own,
        "the quoted header is cut off"
    );
    assert_eq!(
        key(&error(3, &v6(6, &TCP))),
        own,
        "the quoted packet is IPv6"
    );
    let without_ports = FlowKey::new(end(1, 0), end(2, 0), 6);
    assert_eq!(key(&error(3, &quote[..23])), without_ports);
    let message = [&[1, 0, 0, 0, 0, 0, 0, 0][..], &v6(6, &TCP)].concat();
    let whole = ethernet(0x86dd, &v6(58, &message));
    assert_eq!(key(&whole), key(&ethernet(0x86dd, &v6(6, &TCP))));
}

#[test]
fn media_is_told_by_ports_version_and_type() {
    let told_of = |source: u16, destination: u16, begin: [u8; 2], len: usize| {
        let payload = [&begin[..], &[0; 10]].concat();
        let bytes = ethernet(
            0x0800,
            &v4(17, 0, &udp(source, destination, &payload[..len])),
        );
        let whole = frame(&bytes);
        let layers = Layers::of(&whole);
        let udp = layers.ip().unwrap().udp().unwrap();
        (
            udp.rtp().map(|rtp| rtp.payload_type()),
            udp.rtcp().map(|rtcp| rtcp.packet_type()),
        )
    };
    let told = |source, destination, begin| told_of(source, destination, begin, 12);
    assert_eq!(told(5004, 6004, [0x80, 0x88]), (Some(8), None));
    assert_eq!(told(5004, 6004, [0x40, 0x88]), (None, None), "version 1");
    assert_eq!(told(5004, 6005, [0x80, 0x88]), (None, None));
    assert_eq!(told(1022, 6004, [0x80, 0x88]), (None, None));
    assert_eq!(told(5005, 6005, [0x80, 200]), (None, Some(200)));
    assert_eq!(told(5005, 6005, [0x80, 205]), (None, None));
    assert_eq!(told_of(5004, 6004, [0x80, 0x88], 11), (None, None), "cut");
    assert_eq!(told_of(5005, 6005, [0x80, 200], 4), (None, Some(200)));
    assert_eq!(told_of(5005, 6005, [0x80, 200], 3), (None, None), "cut");
}

#[test]
fn arp_is_that_of_ipv4() {
    let request = [
        0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
    ];
    let bytes = ethernet(0x0806, &request);
    let whole = frame(&bytes);
    let arp = Layers::of(&whole).arp().unwrap();
    assert_eq!(
        (arp.operation(), arp.sender()),
        (1, Ipv4Addr::new(10, 0, 0, 1))
    );
    assert_eq!(arp.target(), Ipv4Addr::new(10, 0, 0, 2));
    assert!(Layers::of(&frame(&bytes[..41])).arp().is_none());
}

#[test]
fn ports_of_sctp_come_with_its_tag() {
    let bytes = ethernet(0x0800, &v4(132, 0, &[0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0]));
    let whole = frame(&bytes);
    let layers = Layers::of(&whole);
    let ip = layers.ip().unwrap();
    assert_eq!(
        ip.ports(),
        Some(Ports {
            source: 1,
            destination: 2
        })
    );
    assert_eq!(ip.sctp().map(|sctp| sctp.verification_tag()), Some(3));
}
