//! Every frame of every description parses, has correct checksums, and matches the description.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a test may end where its input is not as it should be"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use etherparse::{LinkExtSlice, NetSlice, SlicedPacket, TransportSlice};
use fanpcap_gen::{Description, Families, Lengths, Pool, Transports};
use proptest::prelude::*;

/// A received datagram, reassembled.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Datagram {
    ends: [IpAddr; 2],
    protocol: u8,
    segment: Vec<u8>,
    pieces: usize,
}

/// The properties of a description's frames, as received.
#[derive(Debug, Default)]
struct Seen {
    datagrams: Vec<Datagram>,
    vlans: BTreeSet<Vec<u16>>,
    networks: BTreeSet<Option<u32>>,
}

/// The first `count` frames, each with its number as its stamp.
fn look_at(pool: &Pool, count: u64) -> Seen {
    let mut seen = Seen::default();
    let mut parts: Option<Datagram> = None;
    for number in 0..count {
        let frame = pool.frame(number);
        let packet = SlicedPacket::from_ethernet(&frame).unwrap();
        let vlans = packet.link_exts.iter().filter_map(|tag| match tag {
            LinkExtSlice::Vlan(vlan) => Some(vlan.vlan_identifier().value()),
            LinkExtSlice::Macsec(_) => None,
        });
        seen.vlans.insert(vlans.collect());
        let tunnelled = match &packet.transport {
            Some(TransportSlice::Udp(udp)) if udp.destination_port() == 4789 => Some(udp),
            _ => None,
        };
        let Some(udp) = tunnelled else {
            seen.networks.insert(None);
            take(&packet, &mut parts, &mut seen.datagrams);
            continue;
        };
        let mut outer = None;
        take(&packet, &mut outer, &mut Vec::new());
        let vxlan = udp.payload();
        assert_eq!(vxlan[0], 0x08);
        let network = u32::from_be_bytes(vxlan[4..8].try_into().unwrap()) >> 8;
        seen.networks.insert(Some(network));
        let inner = SlicedPacket::from_ethernet(&vxlan[8..]).unwrap();
        take(&inner, &mut parts, &mut seen.datagrams);
    }
    seen
}

/// Adds a packet, or a fragment of one, to the received datagrams. Fragments come in order, one
/// datagram after another.
fn take(packet: &SlicedPacket<'_>, parts: &mut Option<Datagram>, all: &mut Vec<Datagram>) {
    let net = packet.net.as_ref().unwrap();
    let payload = net.ip_payload_ref().unwrap();
    let (ends, offset, more): ([IpAddr; 2], usize, bool) = match net {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            let sum = header.to_header().calc_header_checksum();
            assert_eq!(sum, header.header_checksum());
            let ends = [
                header.source_addr().into(),
                header.destination_addr().into(),
            ];
            let offset = header.fragments_offset().byte_offset();
            (ends, offset.into(), header.more_fragments())
        }
        NetSlice::Ipv6(ip) => {
            let header = ip.header();
            let ends = [
                header.source_addr().into(),
                header.destination_addr().into(),
            ];
            let fragment = ip.extensions().clone().into_iter().find_map(|extension| {
                if let etherparse::Ipv6ExtensionSlice::Fragment(fragment) = extension {
                    let offset = fragment.fragment_offset().byte_offset();
                    return Some((usize::from(offset), fragment.more_fragments()));
                }
                None
            });
            let (offset, more) = fragment.unwrap_or_default();
            (ends, offset, more)
        }
        NetSlice::Arp(_) => panic!("nobody asked for ARP"),
    };
    let datagram = parts.get_or_insert_with(|| Datagram {
        ends,
        protocol: payload.ip_number.0,
        segment: Vec::new(),
        pieces: 0,
    });
    assert_eq!(
        datagram.ends, ends,
        "fragments of one datagram are not interrupted"
    );
    assert_eq!(datagram.segment.len(), offset);
    datagram.segment.extend(payload.payload);
    datagram.pieces += 1;
    if !more {
        let whole = parts.take().unwrap();
        assert!(holds(&whole), "{whole:?}");
        all.push(whole);
    }
}

/// Whether the transport checksum is correct: the sum with the pseudo-header is all ones (RFC
/// 1071).
fn holds(datagram: &Datagram) -> bool {
    let mut bytes = Vec::new();
    for end in datagram.ends {
        match end {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    let place = if datagram.protocol == 17 { 6 } else { 16 };
    if datagram.segment[place..place + 2] == [0, 0] && datagram.protocol == 17 {
        return false;
    }
    bytes.extend([0, datagram.protocol]);
    bytes.extend(u32::try_from(datagram.segment.len()).unwrap().to_be_bytes());
    bytes.extend(&datagram.segment);
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    let sum: u64 = bytes
        .chunks(2)
        .map(|word| (u64::from(word[0]) << 8) | u64::from(word[1]))
        .sum();
    sum % 0xffff == 0
}

fn descriptions() -> impl Strategy<Value = Description> {
    let lengths = prop_oneof![
        (14_u16..3000).prop_map(Lengths::Fixed),
        (14_u16..1515, 0_u16..2000).prop_map(|(from, more)| Lengths::Uniform(from, from + more)),
        Just(Lengths::Imix),
    ];
    let families = prop_oneof![Just(Families::V4), Just(Families::V6), Just(Families::Both)];
    let transports = prop_oneof![
        Just(Transports::Udp),
        Just(Transports::Tcp),
        Just(Transports::Both)
    ];
    let vlans = prop::collection::vec(0_u16..4095, 0..3);
    let vxlan = prop::option::of(0_u32..1 << 24);
    let fragments = prop::option::of(1_u32..20);
    (
        (any::<u64>(), 4_u32..100, lengths, families, transports),
        (any::<bool>(), vlans, vxlan, fragments, any::<bool>()),
    )
        .prop_map(|(first, second)| Description {
            seed: first.0,
            flows: first.1,
            lengths: first.2,
            families: first.3,
            transports: first.4,
            answers: second.0,
            vlans: second.1,
            vxlan: second.2,
            fragments: second.3,
            stamp: second.4,
            ..Description::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_frame_is_sound_and_as_described(description in descriptions()) {
        let pool = description.pool().unwrap();
        let seen = look_at(&pool, pool.len().min(400) as u64);
        prop_assert_eq!(&seen.vlans, &BTreeSet::from([description.vlans.clone()]));
        prop_assert_eq!(&seen.networks, &BTreeSet::from([description.vxlan]));
        for (number, datagram) in (1_u32..).zip(&seen.datagrams) {
            let fragmented = description.fragments.is_some_and(|every| number % every == 0);
            prop_assert_eq!(datagram.pieces, if fragmented { 3 } else { 1 });
        }
        let protocols: BTreeSet<u8> = seen.datagrams.iter().map(|one| one.protocol).collect();
        let expected: &[u8] = match description.transports {
            Transports::Udp => &[17],
            Transports::Tcp => &[6],
            Transports::Both => &[6, 17],
        };
        prop_assert_eq!(protocols, expected.iter().copied().collect());
    }

    #[test]
    fn a_seed_decides_every_byte(description in descriptions()) {
        let (one, two) = (description.pool().unwrap(), description.pool().unwrap());
        let other = Description { seed: description.seed ^ 1, ..description };
        let other = other.pool().unwrap();
        prop_assert_eq!(one.len(), two.len());
        let count = one.len().min(300) as u64;
        let frames = |pool: &Pool| (0..count).map(|n| pool.frame(n)).collect::<Vec<_>>();
        prop_assert_eq!(frames(&one), frames(&two));
        prop_assert_ne!(frames(&one), frames(&other));
    }
}

#[test]
fn payload_is_the_same_in_all_frames_but_for_the_number() {
    let description = Description {
        lengths: Lengths::Uniform(60, 1514),
        ..Description::default()
    };
    let pool = description.pool().unwrap();
    let payload = 14 + 20 + 8;
    for number in [0, 1, 77, 0x1_0000_0005] {
        let frame = pool.frame(number);
        let low = u32::try_from(number & 0xffff_ffff).unwrap();
        assert_eq!(frame[payload..payload + 4], low.to_be_bytes());
        assert_eq!(frame[payload + 4..payload + 8], (!low).to_be_bytes());
        let rest = frame[payload + 8..].iter().zip(payload + 8..);
        assert!(rest.clone().count() > 0);
        for (byte, place) in rest {
            assert_eq!(usize::from(*byte), place % 256);
        }
    }
    let plain = Description {
        stamp: false,
        ..description
    };
    let pool = plain.pool().unwrap();
    assert_eq!(pool.frame(0)[payload..payload + 8], *b"*+,-./01");
}

#[test]
fn a_mix_has_its_proportions() {
    let description = Description {
        lengths: Lengths::Imix,
        flows: 100,
        ..Description::default()
    };
    let pool = description.pool().unwrap();
    let mut counts = BTreeMap::new();
    for number in 0..pool.len() as u64 {
        *counts.entry(pool.frame(number).len()).or_insert(0) += 1;
    }
    let twelfth = pool.len() / 12;
    let expected = [(60, 7 * twelfth), (590, 4 * twelfth), (1514, twelfth)];
    assert_eq!(counts, BTreeMap::from(expected));
}

#[test]
fn each_flow_has_its_turn_and_its_answer() {
    let description = Description {
        flows: 50,
        answers: true,
        ..Description::default()
    };
    let pool = description.pool().unwrap();
    let datagrams = look_at(&pool, pool.len() as u64).datagrams;
    assert_eq!(datagrams.len(), 100);
    let key = |one: &Datagram| (one.ends, one.segment[..4].to_vec());
    let forth: BTreeSet<_> = datagrams[..50].iter().map(key).collect();
    assert_eq!(forth.len(), 50);
    for (one, answer) in datagrams[..50].iter().zip(&datagrams[50..]) {
        assert_eq!(one.ends, [answer.ends[1], answer.ends[0]]);
        assert_eq!(one.segment[..2], answer.segment[2..4]);
        assert_eq!(one.segment[2..4], answer.segment[..2]);
    }
    let (first, answer) = (pool.frame(0), pool.frame(50));
    assert_eq!(first[..6], answer[6..12]);
    assert_eq!(first[6..12], answer[..6]);
}

#[test]
fn what_no_frame_is_like_is_refused() {
    let flows = |flows, sources: &str| Description {
        flows,
        sources4: sources.parse().unwrap(),
        ..Description::default()
    };
    let lengths = |lengths| Description {
        lengths,
        ..Description::default()
    };
    for (description, why) in [
        (flows(0, "10.0.0.0/8"), "0 flows"),
        (flows(100_000, "10.0.0.1"), "room for 64512"),
        (flows(1, "fd00::/64"), "other family"),
        (lengths(Lengths::Fixed(13)), "a length of 13"),
        (lengths(Lengths::Uniform(70, 60)), "shorter one first"),
        (
            Description {
                vlans: vec![4095],
                ..Description::default()
            },
            "VLANs [4095]",
        ),
        (
            Description {
                vxlan: Some(1 << 24),
                ..Description::default()
            },
            "24 bits",
        ),
        (
            Description {
                fragments: Some(0),
                ..Description::default()
            },
            "say 1 or more",
        ),
        (
            Description {
                flows: 65_536,
                fragments: Some(999),
                ..Description::default()
            },
            "every 999th",
        ),
        (
            Description {
                lengths: Lengths::Fixed(30_000),
                fragments: Some(2),
                ..Description::default()
            },
            "26000 at most",
        ),
        (flows(4_000_000, "10.0.0.0/8"), "more than 256 MiB"),
    ] {
        let error = description.pool().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_million_flows_fit() {
    let description = Description {
        flows: 1_000_000,
        ..Description::default()
    };
    let pool = description.pool().unwrap();
    assert_eq!(pool.len(), 1_000_000);
    assert_eq!(pool.bytes(), 60_000_000);
}

#[test]
fn every_so_manieth_datagram_is_fragmented_again_and_again() {
    for (flows, every) in [(64, 7), (10, 4), (100, 30)] {
        let description = Description {
            flows,
            fragments: Some(every),
            ..Description::default()
        };
        let pool = description.pool().unwrap();
        let whole = look_at(&pool, pool.len() as u64).datagrams;
        // The pool has whole rounds, so the first datagram of the second round is the same as in
        // the first round.
        assert_eq!(whole.len() % every as usize, 0, "{flows} {every}");
        assert_eq!(whole.len() % flows as usize, 0, "{flows} {every}");
        assert_eq!(whole.last().unwrap().pieces, 3);
    }
}

#[test]
fn the_longest_frames_are_sound() {
    for vxlan in [None, Some(7)] {
        let description = Description {
            lengths: Lengths::Fixed(65_535),
            vxlan,
            families: Families::Both,
            ..Description::default()
        };
        let pool = description.pool().unwrap();
        assert_eq!(pool.longest(), 65_535);
        assert_eq!(look_at(&pool, 4).datagrams.len(), 4);
    }
}
