//! Checks each predicate with frames for both results.

use super::frames::*;
use super::*;
use crate::ir::{Comparison, Header, Key, Net, Property, Side};

fn is(property: Property, value: u64, frame: &[u8]) -> bool {
    ask(
        Predicate::Compare(property, Comparison::Equal, value),
        frame,
    )
}

fn absent(property: Property, frame: &[u8]) -> bool {
    let there = Predicate::Compare(property, Comparison::GreaterEqual, 0);
    !ask(there, frame)
}

#[test]
#[ignore = "needs root: eBPF"]
fn properties_are_as_the_headers_say() {
    let tagged = ethernet(0x8100, &tag(0x2005, 0x88a8, &tag(6, 0x0800, &udp4()[14..])));
    let options = ethernet(0x0800, &v4_with(&[1; 8], 6, 0x4000, &tcp(7, 8)));
    let fragment = [17, 0, 0x01, 0x01, 0xde, 0xad, 0xbe, 0xef];
    let later6 = ethernet(0x86dd, &v6(44, &[&fragment[..], &[0; 20]].concat()));
    let icmp = ethernet(0x0800, &v4(1, 0, &[3, 4, 0, 0, 0, 0, 0, 0]));
    let icmp6 = ethernet(0x86dd, &v6(58, &[128, 9, 0, 0]));
    for (frame, property, value) in [
        (udp4(), Property::EtherType, 0x0800),
        (udp6(), Property::EtherType, 0x86dd),
        (tagged.clone(), Property::EtherType, 0x0800),
        (tagged.clone(), Property::VlanId, 5),
        (udp4(), Property::Protocol, 17),
        (later6.clone(), Property::Protocol, 17),
        (udp4(), Property::Tos, 0xb8),
        (udp6(), Property::Tos, 0xb8),
        (udp4(), Property::IpLength, 48),
        (udp6(), Property::IpLength, 68),
        (udp4(), Property::IpId, 0x1234),
        (later6.clone(), Property::IpId, 0xdead_beef),
        (later6.clone(), Property::IpFragment, 0x2020),
        (options.clone(), Property::IpFragment, 0x4000),
        (udp6(), Property::IpFragment, 0),
        (udp4(), Property::Ttl, 64),
        (udp6(), Property::Ttl, 64),
        (options.clone(), Property::TcpSource, 7),
        (tcp4(), Property::TcpDestination, 2222),
        (tcp4(), Property::TcpHeaderLength, 20),
        (udp4(), Property::UdpSource, 1111),
        (udp6(), Property::UdpDestination, 2222),
        (udp4(), Property::UdpLength, 28),
        (icmp.clone(), Property::IcmpType, 3),
        (icmp.clone(), Property::IcmpCode, 4),
        (icmp6.clone(), Property::IcmpType, 128),
        (icmp6, Property::IcmpCode, 9),
    ] {
        assert!(is(property, value, &frame), "{property:?} of {frame:02x?}");
        assert!(
            !is(property, value ^ 1, &frame),
            "{property:?} of {frame:02x?}"
        );
    }
    for (frame, property) in [
        (udp4(), Property::VlanId),
        (arp(), Property::Protocol),
        (arp(), Property::Ttl),
        (udp6(), Property::IpId),
        (udp4(), Property::TcpSource),
        (tcp4(), Property::UdpSource),
        (tcp4()[..14 + 20 + 19].to_vec(), Property::TcpSource),
        (udp4()[..14 + 20 + 7].to_vec(), Property::UdpLength),
        (udp4(), Property::IcmpType),
        (later6, Property::UdpSource),
        (tagged[..16].to_vec(), Property::EtherType),
    ] {
        assert!(absent(property, &frame), "{property:?} of {frame:02x?}");
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn numbers_compare_without_sign() {
    use Comparison::{AllBits, AnyBit, Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
    // The property has the value 1111, which is 0x457.
    for (comparison, number, expected) in [
        (Less, 1111, false),
        (Less, 1112, true),
        (Less, 1 << 40, true),
        (LessEqual, 1111, true),
        (LessEqual, 1110, false),
        (Equal, (1 << 32) + 1111, false),
        (NotEqual, 1111, false),
        (NotEqual, 0, true),
        (Greater, 1110, true),
        (Greater, u64::MAX, false),
        (GreaterEqual, 1111, true),
        (GreaterEqual, 0xffff_ffff, false),
        (AnyBit, 0x401, true),
        (AnyBit, 0x808, false),
        (AnyBit, 0, false),
        (AllBits, 0x457, true),
        (AllBits, 0x457 | (1 << 35), false),
        (AllBits, 0, true),
    ] {
        let predicate = Predicate::Compare(Property::UdpSource, comparison, number);
        assert_eq!(ask(predicate, &udp4()), expected, "{comparison:?} {number}");
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn headers_are_there_or_not() {
    let tagged = ethernet(0x8100, &tag(5, 0x0800, &udp4()[14..]));
    let mut group = ethernet(0x0800, &udp4()[14..]);
    group[..6].fill(0xff);
    group[30..34].fill(0xff);
    let mut many = udp6();
    many[0] = 1;
    many[38] = 0xff;
    let mut some = udp4();
    some[30] = 239;
    let first = ethernet(0x0800, &v4(17, 0x2000, &udp(1, 2, &[0; 8])));
    let later = ethernet(0x0800, &v4(17, 5, &[0; 16]));
    let carries = tunnels().swap_remove(9).1;
    for (header, yes, no) in [
        (Header::Link, arp(), None),
        (Header::Tag, tagged, Some(udp4())),
        (Header::Ipv4, udp4(), Some(udp6())),
        (Header::Ipv6, udp6(), Some(udp4())),
        (Header::Ip, udp6(), Some(arp())),
        (Header::Fragment, later.clone(), Some(udp4())),
        (Header::Fragment, first.clone(), Some(udp6())),
        (Header::FirstFragment, first.clone(), Some(later.clone())),
        (Header::LaterFragment, later, Some(first)),
        (Header::Inner, carries, Some(udp4())),
        (Header::LinkBroadcast, group.clone(), Some(many.clone())),
        (Header::LinkMulticast, many.clone(), Some(udp4())),
        (Header::IpBroadcast, group.clone(), Some(some.clone())),
        (Header::IpMulticast, some, Some(group)),
        (Header::IpMulticast, many, Some(udp6())),
    ] {
        assert!(ask(Predicate::Has(header), &yes), "{header:?}");
        assert!(
            no.is_none_or(|no| !ask(Predicate::Has(header), &no)),
            "{header:?}"
        );
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn addresses_and_ports_are_of_the_side_that_is_asked() {
    let net = |text: &str, bits| Net {
        address: text.parse().unwrap(),
        bits,
    };
    for (text, bits, source, destination) in [
        ("10.0.0.1", 32, true, false),
        ("10.0.0.2", 32, false, true),
        ("10.0.0.0", 30, true, true),
        ("10.0.0.0", 31, true, false),
        ("192.0.2.0", 24, false, false),
        ("0.0.0.0", 0, true, true),
        ("::", 0, false, false),
    ] {
        for (side, expected) in [
            (Side::Source, source),
            (Side::Destination, destination),
            (Side::Either, source || destination),
        ] {
            assert_eq!(
                ask(Predicate::Address(side, net(text, bits)), &udp4()),
                expected,
                "{text} {side:?}"
            );
        }
    }
    for (text, bits, source, destination) in [
        ("2001:db8::1", 128, true, false),
        ("2001:db8::2", 127, false, true),
        ("2001:db8::", 61, true, true),
        ("2001:db8:0:1::", 64, false, false),
        ("::", 0, true, true),
        ("0.0.0.0", 0, false, false),
    ] {
        let asked = |side| ask(Predicate::Address(side, net(text, bits)), &udp6());
        assert_eq!(
            (asked(Side::Source), asked(Side::Destination)),
            (source, destination),
            "{text}"
        );
    }
    for (side, port, expected) in [
        (Side::Source, 1111, true),
        (Side::Source, 2222, false),
        (Side::Destination, 2222, true),
        (Side::Either, 1111, true),
        (Side::Either, 0, false),
    ] {
        for frame in [udp4(), tcp4(), udp6()] {
            assert_eq!(
                ask(Predicate::Port(side, port), &frame),
                expected,
                "{side:?} {port}"
            );
        }
    }
    assert!(!ask(Predicate::Port(Side::Either, 0), &arp()));
}

#[test]
#[ignore = "needs root: eBPF"]
fn sets_short_and_long_have_their_members() {
    let long: Vec<u128> = (0..1000).map(|number| 1111 + 7 * number).collect();
    let (v4, v6) = (0x0a00_0000_u128, 0x2001_0db8_u128 << 96);
    let wide: Vec<u128> = (0..40).map(|number| v6 + (number << 64)).collect();
    let narrow: Vec<u128> = (0..40).map(|number| v4 + (number << 8)).collect();
    let sets = vec![
        vec![5, 1111],
        vec![(1 << 64) | 1111],
        long,
        wide,
        vec![v6],
        narrow,
        vec![v4],
        vec![],
    ];
    let member = |property, set| ask_of(Predicate::Member(property, set), sets.clone(), &udp4());
    assert!(member(Property::UdpSource, 0) && !member(Property::UdpDestination, 0));
    assert!(
        !member(Property::UdpSource, 1),
        "the set has only a longer number"
    );
    assert!(member(Property::UdpSource, 2) && !member(Property::UdpDestination, 2));
    assert!(!member(Property::UdpSource, 7) && !member(Property::UdpSource, 8));
    let within = |side, ipv6, bits, set, frame: &[u8]| {
        ask_of(
            Predicate::AddressIn {
                side,
                ipv6,
                bits,
                set,
            },
            sets.clone(),
            frame,
        )
    };
    for (ipv6, set, frame) in [
        (true, 3, udp6()),
        (true, 4, udp6()),
        (false, 5, udp4()),
        (false, 6, udp4()),
    ] {
        let bits = if ipv6 { 64 } else { 24 };
        assert!(
            within(Side::Destination, ipv6, bits, set, &frame),
            "set {set}"
        );
        assert!(
            !within(Side::Either, ipv6, if ipv6 { 128 } else { 32 }, set, &frame),
            "set {set}"
        );
        assert!(!within(Side::Either, ipv6, bits, set, &arp()), "set {set}");
    }
    assert!(!within(Side::Either, false, 24, 5, &udp6()));
}

#[test]
#[ignore = "needs root: eBPF"]
fn predicates_combine() {
    let (yes, no) = (Predicate::Has(Header::Ipv4), Predicate::Has(Header::Ipv6));
    let of = |value| Box::new(if value { yes.clone() } else { no.clone() });
    for (one, other) in [(false, false), (false, true), (true, false), (true, true)] {
        assert_eq!(
            ask(Predicate::And(of(one), of(other)), &udp4()),
            one && other
        );
        assert_eq!(
            ask(Predicate::Or(of(one), of(other)), &udp4()),
            one || other
        );
        assert_eq!(
            ask(Predicate::Xor(of(one), of(other)), &udp4()),
            one != other
        );
        let nested = Predicate::Xor(of(one), Box::new(Predicate::Xor(of(other), of(true))));
        assert_eq!(ask(nested, &udp4()), one == other);
        assert_eq!(ask(Predicate::Not(of(one)), &udp4()), !one);
        assert_eq!(ask(Predicate::Constant(one), &udp4()), one);
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn shares_are_parts_of_all() {
    let share = |index, key| Predicate::Share { index, of: 5, key };
    for frame in [udp4(), udp6(), tcp4()] {
        let parts =
            (0..5).filter(|&index| ask(share(index, Key::IP_SOURCE.and(Key::SOURCE_PORT)), &frame));
        assert_eq!(parts.count(), 1);
        assert!(
            (0..5).all(|index| !ask(share(index, Key::VLAN), &frame)),
            "a frame without a tag is in no share"
        );
    }
}

#[test]
#[ignore = "needs root: eBPF"]
fn media_are_known_by_ports_and_head() {
    let frame = |source, destination, payload: &[u8]| {
        ethernet(0x0800, &v4(17, 0, &udp(source, destination, payload)))
    };
    let rtp = [&[0x80, 0][..], &[0; 10]].concat();
    let rtcp = [0x81, 200, 0, 6, 0, 0, 0, 0];
    assert!(ask(Predicate::Rtp, &frame(5004, 6000, &rtp)));
    assert!(ask(Predicate::Rtcp, &frame(5005, 6001, &rtcp)));
    for wrong in [
        frame(5004, 6001, &rtp),
        frame(80, 6000, &rtp),
        frame(5004, 6000, &[0; 12]),
        frame(5004, 6000, &rtp[..11]),
    ] {
        assert!(!ask(Predicate::Rtp, &wrong), "{wrong:02x?}");
    }
    for wrong in [
        frame(5004, 6000, &rtcp),
        frame(5005, 6001, &[0x80, 205, 0, 0]),
        frame(5005, 6001, &[0x80, 199, 0, 0]),
    ] {
        assert!(!ask(Predicate::Rtcp, &wrong), "{wrong:02x?}");
    }
}
