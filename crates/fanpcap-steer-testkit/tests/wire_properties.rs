//! What holds for any bytes.
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
        let whole = facts::of(&made.frame());
        for len in 0..made.bytes.len() {
            let part = Frame { bytes: &made.bytes[..len], tag: made.tag };
            if is_doubtful(&Layers::of(&part), &Layers::of(&made.frame())) {
                continue;
            }
            for (name, fact) in facts::of(&part) {
                prop_assert_eq!(whole.get(&name), Some(&fact), "{} of {} bytes", name, len);
            }
        }
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

/// Whether the part has taken for IPv6 what the whole shows to be a frame.
fn is_doubtful(part: &Layers<'_>, whole: &Layers<'_>) -> bool {
    let is_framed = |layers: &Layers<'_>| layers.inner().is_some_and(|it| it.link().is_some());
    let is_v6 = |layers: &Layers<'_>| layers.ip().is_some_and(|ip| ip.ipv6().is_some());
    let inner = part.inner();
    let found = if whole.ip().is_none() {
        Some(part)
    } else {
        inner.as_ref()
    };
    is_framed(whole) && !is_framed(part) && found.is_some_and(is_v6)
}

/// The same packet the other way round: its addresses and ports changed in the bytes.
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
