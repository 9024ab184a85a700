//! Tests the evaluator's decisions on fragments, which must go to the member of their datagram.

use super::*;

#[test]
fn fragments_follow_their_first_one() {
    let first = ethernet(0x0800, &v4(6, 0x2000, &TCP));
    let later = ethernet(0x0800, &v4(6, 0x0002, &[0; 16]));
    let whole = Decision::Steer(finish(flow_of_tcp()));
    let alone = Decision::Steer(finish(by_addresses()));
    let flow = program(Function::Steer(Steer::Flow(Flow::WHOLE)));

    let mut evaluator = Evaluator::new(&flow);
    let mut at = |bytes: &[u8], now_ns: u64| {
        let decision = evaluator.decide(&Packet {
            now_ns,
            ..packet(bytes)
        });
        (decision, evaluator.late())
    };
    assert_eq!(at(&first, 0), (whole, 0));
    assert_eq!(at(&later, 5), (whole, 0));
    assert_eq!(at(&later, FRAGMENT_AGE_NS), (whole, 0));
    // The evaluator has forgotten the datagram. So it steers the datagram's fragments by the
    // addresses now, including the first fragment.
    assert_eq!(at(&later, FRAGMENT_AGE_NS + 1), (alone, 1));
    assert_eq!(at(&later, FRAGMENT_AGE_NS + 2), (alone, 1));
    assert_eq!(at(&first, FRAGMENT_AGE_NS + 3), (alone, 1));
    // The evaluator remembers a new datagram with the same identification.
    assert_eq!(at(&first, FRAGMENT_AGE_NS + 4), (whole, 1));
    assert_eq!(at(&later, FRAGMENT_AGE_NS + 5), (whole, 1));
}

/// A datagram is captured on both sides of a router, which keeps the identification. On each VLAN
/// the datagram must count as another datagram if the program distinguishes VLANs.
#[test]
fn a_datagram_on_two_vlans_is_two_where_they_count() {
    let on = |id: u8, field, payload: &[u8]| {
        let tagged = [&[0, id, 8, 0][..], &v4(6, field, payload)].concat();
        ethernet(0x8100, &tagged)
    };
    let flow = Flow {
        vlan: true,
        ..Flow::WHOLE
    };
    let mut evaluator = Evaluator::new(&program(Function::Steer(Steer::Flow(flow))));
    let firsts = [7, 8].map(|id| evaluator.decide(&packet(&on(id, 0x2000, &TCP))));
    assert_ne!(firsts[0], firsts[1]);
    let others = [7, 8].map(|id| evaluator.decide(&packet(&on(id, 2, &[0; 16]))));
    assert_eq!(firsts, others);
    assert_eq!(evaluator.late(), 0);
}

/// Only the first fragment contains the upper protocol, but all fragments belong to one datagram.
#[test]
fn fragments_of_ipv6_follow_whatever_header_is_first() {
    let options = [&[6, 0, 1, 4, 0, 0, 0, 0][..], &TCP].concat();
    let first = ethernet(0x86dd, &v6(44, &fragment(60, 0x0001, &options)));
    let later = ethernet(0x86dd, &v6(44, &fragment(60, 0x0010, &[0; 16])));
    let mut evaluator = Evaluator::new(&program(Function::Steer(Steer::Flow(Flow::WHOLE))));
    let there = evaluator.decide(&packet(&first));
    let hash = both(end6(HIGH, 1, 8080), end6(HIGH, 2, 80));
    assert_eq!(there, Decision::Steer(finish(hash)));
    assert_eq!(evaluator.decide(&packet(&later)), there);
    assert_eq!(evaluator.late(), 0);
}

/// Only the first fragment of a tunnel packet contains the headers of the carried packet.
#[test]
fn fragments_of_a_tunnel_follow_what_it_carries() {
    let carried = [&[8, 0, 0, 0, 0, 0, 7, 0][..], &tcp()].concat();
    let tunnel = [&[0xc3, 0x50, 0x12, 0xb5, 0, 0, 0, 0][..], &carried].concat();
    let first = ethernet(0x0800, &v4(17, 0x2000, &tunnel));
    let later = ethernet(0x0800, &v4(17, 0x0009, &[0; 16]));
    let flow = |flow| Function::Inner(Box::new(Function::Steer(Steer::Flow(flow))));
    let (whole, addresses) = (flow(Flow::WHOLE), flow(Flow::ADDRESSES));
    for (function, hash) in [(whole, flow_of_tcp()), (addresses, by_addresses())] {
        let mut evaluator = Evaluator::new(&program(function));
        let there = Decision::Steer(finish(hash));
        assert_eq!(evaluator.decide(&packet(&first)), there);
        assert_eq!(evaluator.decide(&packet(&later)), there);
        assert_eq!(evaluator.late(), 0);
        // The later fragment of another datagram of the tunnel comes first.
        let later = ethernet(0x0800, &v4(47, 0x0009, &[0; 16]));
        assert_eq!(
            evaluator.decide(&packet(&later)),
            Decision::Steer(finish(by_addresses()))
        );
        assert_eq!(evaluator.late(), 1);
    }
}

/// The evaluator must remember the most recent datagrams, however many datagrams come.
#[test]
fn the_last_datagrams_are_remembered() {
    let fragment_of = |datagram: usize, field| {
        let mut bytes = ethernet(0x0800, &v4(6, field, &TCP));
        // The identification and the upper half of the address distinguish the datagrams.
        bytes[18..20].copy_from_slice(&u16::try_from(datagram % 65536).unwrap().to_be_bytes());
        bytes[26..28].copy_from_slice(&u16::try_from(datagram / 65536).unwrap().to_be_bytes());
        bytes
    };
    let mut evaluator = Evaluator::new(&program(Function::Steer(Steer::Flow(Flow::WHOLE))));
    let most = FRAGMENTS_MAX as usize;
    let count = 5 * most;
    let there: Vec<_> = (0..count)
        .map(|datagram| evaluator.decide(&packet(&fragment_of(datagram, 0x2000))))
        .collect();
    for (datagram, there) in there.iter().enumerate().skip(count - most / 2) {
        let followed = evaluator.decide(&packet(&fragment_of(datagram, 2)));
        assert_eq!(followed, *there);
    }
    assert_eq!(evaluator.late(), 0);
    evaluator.decide(&packet(&fragment_of(0, 2)));
    assert_eq!(evaluator.late(), 1, "the first datagram is not remembered");
}

#[test]
fn only_what_is_decided_in_the_end_is_remembered_of_a_datagram() {
    let later = ethernet(0x0800, &v4(6, 0x0002, &[0; 16]));
    let flow = || Function::Steer(Steer::Flow(Flow::WHOLE));
    let by_vlan = Function::Steer(Steer::Flow(Flow {
        vlan: true,
        ..Flow::WHOLE
    }));
    let mut evaluator = Evaluator::new(&program(Function::Sequence(vec![flow(), by_vlan])));
    let number = finish(fold(by_addresses(), 0));
    assert_eq!(evaluator.decide(&packet(&later)), Decision::Steer(number));
    assert_eq!(evaluator.late(), 1);
    let dropped = Function::Sequence(vec![flow(), Function::Drop]);
    let mut evaluator = Evaluator::new(&program(dropped));
    assert_eq!(evaluator.decide(&packet(&later)), Decision::Drop);
    assert_eq!(evaluator.late(), 0);
}
