//! Compares the walk over a frame's headers (`Layers`) with another parser, etherparse, for the
//! headers that both parsers read.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

use etherparse::{LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket, LinkSlice, TransportSlice};
use fanpcap_steer_testkit::{Draw, Made, packet, packets, tape};
use fanpcap_wire::{Frame, Ip, Layers, number};
use proptest::prelude::*;

/// Numbers of headers that both parsers have found, by kind.
#[derive(Debug, Default)]
struct Compared {
    tags: usize,
    v4: usize,
    v6: usize,
    transport: usize,
}

/// The largest number of tags that etherparse skips.
const TAGS_MAX: usize = 3;

fn compare(made: &Made, compared: &mut Compared) {
    let frame = Frame {
        bytes: &made.bytes,
        tag: None,
    };
    let ours = Layers::of(&frame);
    let Ok(theirs) = LaxSlicedPacket::from_ethernet(&made.bytes) else {
        assert!(ours.link().is_none());
        return;
    };
    let link = ours.link().unwrap();
    let Some(LinkSlice::Ethernet2(ethernet)) = &theirs.link else {
        panic!("{theirs:?}");
    };
    assert_eq!(link.source(), ethernet.source());
    assert_eq!(link.destination(), ethernet.destination());
    // etherparse does not know the tags 0x9200 and 0x9300.
    if link.tags().any(|tag| tag.tpid > number::ETHER_TAG_OLD) {
        return;
    }
    let tags = tags(&theirs);
    assert!(
        link.tags()
            .map(|tag| tag.id())
            .take(TAGS_MAX)
            .eq(tags.iter().copied())
    );
    compared.tags += tags.len();
    match &theirs.net {
        // etherparse decides by the version in the IP header, the walk by the Ethernet type. So
        // compare only if both agree.
        Some(LaxNetSlice::Ipv4(_)) if ours.ether_type() != Some(number::ETHER_IPV4) => return,
        Some(LaxNetSlice::Ipv6(_)) if ours.ether_type() != Some(number::ETHER_IPV6) => return,
        Some(LaxNetSlice::Ipv4(v4)) => {
            let header = v4.header();
            let ip = ours.ip().unwrap();
            assert_eq!(ip.source(), header.source_addr());
            assert_eq!(ip.destination(), header.destination_addr());
            assert_eq!(ip.ttl(), header.ttl());
            assert_eq!(ip.total_len(), u32::from(header.total_len()));
            assert_eq!(ip.id, Some(header.identification().into()));
            assert_eq!(ip.protocol, header.protocol().0);
            assert_eq!(ip.is_fragment(), header.is_fragmenting_payload());
            assert_eq!(
                ip.flags_and_offset & 0x1fff,
                header.fragments_offset().value()
            );
            compared.v4 += 1;
        }
        Some(LaxNetSlice::Ipv6(v6)) => {
            let header = v6.header();
            let ip = ours.ip().unwrap();
            assert_eq!(ip.source(), header.source_addr());
            assert_eq!(ip.destination(), header.destination_addr());
            assert_eq!(ip.ttl(), header.hop_limit());
            assert_eq!(ip.tos(), header.traffic_class());
            assert_eq!(ip.total_len(), 40 + u32::from(header.payload_length()));
            compared.v6 += 1;
        }
        Some(LaxNetSlice::Arp(_)) | None => {}
    }
    if let Some(ip) = ours.ip() {
        compared.transport += usize::from(compare_transport(ip, theirs.transport.as_ref()));
    }
}

fn tags(theirs: &LaxSlicedPacket<'_>) -> Vec<u16> {
    let tag = |extension: &LaxLinkExtSlice<'_>| match extension {
        LaxLinkExtSlice::Vlan(tag) => Some(tag.vlan_identifier().value()),
        LaxLinkExtSlice::Macsec(_) => None,
    };
    theirs.link_exts.iter().filter_map(tag).collect()
}

/// Compares the transport headers. etherparse checks total lengths, and reads other and
/// fewer extension headers than the walk. So the walk may find a header that etherparse does not
/// find.
fn compare_transport(ip: &Ip<'_>, theirs: Option<&TransportSlice<'_>>) -> bool {
    // etherparse skips authentication headers in IPv4, and any number of extension headers.
    let is_beyond = match ip.ipv4() {
        Some(_) => ip.protocol == 51,
        None => ip.transport().is_none() && !ip.is_later_fragment(),
    };
    match theirs {
        _ if is_beyond => return false,
        Some(TransportSlice::Tcp(theirs)) => {
            let ours = ip.tcp().unwrap();
            assert_eq!(ours.source(), theirs.source_port());
            assert_eq!(ours.destination(), theirs.destination_port());
            assert_eq!(ours.sequence(), theirs.sequence_number());
            assert_eq!(usize::from(ours.header_len()), theirs.header_len());
        }
        Some(TransportSlice::Udp(theirs)) => {
            let ours = ip.udp().unwrap();
            assert_eq!(ours.source(), theirs.source_port());
            assert_eq!(ours.destination(), theirs.destination_port());
            assert_eq!(ours.datagram_len(), theirs.length());
        }
        Some(TransportSlice::Icmpv4(theirs))
            if ip.protocol == number::ICMP && ip.ipv4().is_some() =>
        {
            let ours = ip.icmp().unwrap();
            assert_eq!((ours.kind, ours.code), (theirs.type_u8(), theirs.code_u8()));
        }
        Some(TransportSlice::Icmpv6(theirs)) if ip.ipv6().is_some() => {
            let ours = ip.icmp().unwrap();
            assert_eq!((ours.kind, ours.code), (theirs.type_u8(), theirs.code_u8()));
        }
        _ => return false,
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_readers_say_the_same(made in packet()) {
        compare(&made, &mut Compared::default());
    }
}

/// Checks that the comparison covers enough headers.
#[test]
fn both_readers_say_the_same_of_many_stacks() {
    let mut compared = Compared::default();
    for seed in 0..5000 {
        let bytes = packets::frame(&mut Draw::new(&tape(seed, 300)));
        compare(
            &Made {
                bytes,
                ..Made::default()
            },
            &mut compared,
        );
    }
    println!("{compared:?}");
    assert!(compared.tags > 800, "{compared:?}");
    assert!(compared.v4 > 1000, "{compared:?}");
    assert!(compared.v6 > 700, "{compared:?}");
    assert!(compared.transport > 1000, "{compared:?}");
}
