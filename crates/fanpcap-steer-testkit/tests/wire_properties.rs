//! Checks properties that the walk over a frame's headers (`Layers`) must have for any bytes.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may panic"
)]

mod facts;

use fanpcap_steer_testkit::{Made, packet};
use fanpcap_wire::{FlowKey, Frame, Layers, Tag, number};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_walked_to_their_end(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        tci in proptest::option::of(any::<u16>()),
    ) {
        let tag = tci.map(|tci| Tag { tpid: 0x8100, tci });
        facts::of(&Frame { bytes: &bytes, tag });
    }

    #[test]
    fn any_packet_is_walked_to_its_end(made in packet()) {
        facts::of(&made.frame());
    }

    #[test]
    fn a_part_says_nothing_that_the_whole_does_not(made in packet()) {
        let wrong = said_by_parts_alone(&made.frame());
        prop_assert!(wrong.is_none(), "{}", wrong.unwrap_or_default());
    }

    #[test]
    fn both_directions_are_one_flow(made in packet()) {
        let layers = Layers::of(&made.frame());
        let plain = [number::ETHER_IPV4, number::ETHER_IPV6].map(Some);
        if !plain.contains(&layers.ether_type()) || layers.ip().is_none_or(|ip| ip.quoted().is_some()) {
            return Ok(());
        }
        let back = turned(&made);
        let there = layers.ip().map(FlowKey::of);
        prop_assert_eq!(Layers::of(&back.frame()).ip().map(FlowKey::of), there);
    }
}

/// Cuts the frame at each length, and returns a fact that the walk finds in a cut frame but not in
/// the whole frame. There must be no such fact.
fn said_by_parts_alone(frame: &Frame<'_>) -> Option<String> {
    let (whole, layers) = (facts::of(frame), Layers::of(frame));
    for len in 0..frame.bytes.len() {
        let part = Frame {
            bytes: &frame.bytes[..len],
            tag: frame.tag,
        };
        if is_doubtful(&Layers::of(&part), &layers) {
            continue;
        }
        let facts = facts::of(&part).into_iter();
        let mut wrong = facts.filter(|(name, fact)| whole.get(name) != Some(fact));
        if let Some((name, fact)) = wrong.next() {
            let right = whole.get(&name);
            return Some(format!("{name} of {len} bytes: {fact}, not {right:?}"));
        }
    }
    None
}

/// The frame carries, in VXLAN, a frame with MPLS labels. The labels carry an Ethernet frame with
/// an IPv6 packet. This Ethernet frame begins with the digit 6, so while it is cut it looks like an
/// IPv6 packet.
#[test]
fn a_frame_behind_labels_in_a_tunnel_is_in_doubt_while_it_is_cut() {
    const FRAME: &str = "02000000000102000000000188641100000000a40021450100a200014000011165480a000001\
        0a000001005012b5008e0000080000000000000002000000000102000000000181000001d28b\
        0001011100000000000000008847000000400000014060330000000102000000000181000001\
        810000018100000186dd601000000014060120010db800000000000000000000000120010db8\
        0000000000000000000000010050005000000000000000005010000000000000";
    let bytes: Vec<u8> = (0..FRAME.len() / 2)
        .map(|at| u8::from_str_radix(&FRAME[2 * at..2 * at + 2], 16).unwrap())
        .collect();
    let tag = None;
    assert_eq!(said_by_parts_alone(&Frame { bytes: &bytes, tag }), None);
}

/// Whether the walk finds an IPv6 packet in the cut frame at the place where the whole frame has an
/// Ethernet frame.
fn is_doubtful(part: &Layers<'_>, whole: &Layers<'_>) -> bool {
    let addresses = |layers: &Layers<'_>| {
        let link = layers.link()?;
        Some((link.source(), link.destination()))
    };
    let inner = part.inner();
    let found = match whole.ip() {
        None if part.ip().is_some() => Some(part),
        _ => inner.as_ref(),
    };
    let is_v6 = |layers: &&Layers<'_>| layers.ip().is_some_and(|ip| ip.ipv6().is_some());
    let found = found.filter(is_v6);
    let frame = whole.inner().and_then(|it| addresses(&it));
    frame.is_some() && found.is_some_and(|found| addresses(found) != frame)
}

/// The packet in the opposite direction: its addresses and ports are exchanged in the bytes.
fn turned(made: &Made) -> Made {
    let mut turned = made.clone();
    let frame = made.frame();
    let layers = Layers::of(&frame);
    let ip = layers.ip().unwrap();
    let at = |part: &[u8]| part.as_ptr() as usize - made.bytes.as_ptr() as usize;
    let network = at(layers.link().unwrap().payload);
    let (addresses, len) = match ip.ipv4() {
        Some(_) => (network + 12, 4),
        None => (network + 8, 16),
    };
    turned.bytes[addresses..addresses + 2 * len].rotate_left(len);
    if ip.ports().is_some() {
        let ports = at(ip.transport().unwrap());
        turned.bytes[ports..ports + 4].rotate_left(2);
    }
    turned
}
