//! The straight path for plain packets under the mode `flow` decides as the evaluator does.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use fanpcap_steer::ir::Tree;
use fanpcap_steer::native::{Evaluator, Outcome, Packet, plain};
use fanpcap_steer::{is_of_mode, modes, tree};
use fanpcap_steer_testkit::{Draw, packet, packets, tape};
use fanpcap_testkit::frames::{TCP, ethernet, udp, v4, v6};
use fanpcap_wire::{Frame, Tag};
use proptest::prelude::*;

fn flow(mode: &str) -> Tree {
    tree(modes::source(mode).unwrap(), &|_| Ok(vec![])).unwrap()
}

/// What the evaluator decides on a frame that is the first that it sees.
fn decided(bytes: &[u8], tag: Option<Tag>, length: u32) -> Outcome {
    let frame = Frame { bytes, tag };
    let packet = Packet {
        length,
        ..Packet::of(frame)
    };
    Evaluator::of_group(&flow("flow")).evaluate(&packet)
}

/// Whether the packet is plain. If it is, both decisions are the same.
fn is_plain(bytes: &[u8], tag: Option<Tag>, length: u32) -> bool {
    let straight = plain::flow_hash(bytes);
    if let Some(hash) = straight {
        let expected = Outcome {
            decision: fanpcap_steer::native::Decision::Steer(hash),
            class: 0,
            host: fanpcap_steer::native::Host::Unsaid,
            mark: None,
        };
        assert_eq!(decided(bytes, tag, length), expected, "{bytes:x?}");
    }
    straight.is_some()
}

proptest! {
    #[test]
    fn plain_packets_are_steered_as_the_evaluator_does(
        made in packet(),
        changes in proptest::collection::vec((0..60_usize, any::<u8>()), 0..3),
        cut in 0..80_usize,
    ) {
        is_plain(&made.bytes, made.tag, made.length);
        let mut bytes = made.bytes;
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        is_plain(&bytes, made.tag, made.length);
        let len = bytes.len().min(cut);
        is_plain(&bytes[..len], None, made.length);
    }

    /// Plain packets whose ports, protocol and fragment's offset are often those of others.
    #[test]
    fn nearly_plain_packets_are_steered_as_the_evaluator_does(
        is_v6 in any::<bool>(),
        protocol in prop::sample::select(vec![6_u8, 17, 1, 47, 58, 44, 132]),
        ports in prop::array::uniform2(prop::sample::select(vec![
            1_u16, 53, 1701, 2123, 2152, 4341, 4789, 4790, 5247, 6081, 6635, 8472, 37_008,
        ])),
        offset in prop::sample::select(vec![0_u16, 0x4000, 0x2000, 1, 0x8000]),
        length in 0x44..0x47_u8,
        payload in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut transport = ports.map(u16::to_be_bytes).concat();
        transport.extend(payload);
        let mut bytes = match is_v6 {
            true => ethernet(0x86dd, &v6(protocol, &transport)),
            false => ethernet(0x0800, &v4(protocol, 0, &transport)),
        };
        if !is_v6 {
            bytes[14] = length;
            bytes[20..22].copy_from_slice(&offset.to_be_bytes());
        }
        let len = u32::try_from(bytes.len()).unwrap();
        is_plain(&bytes, None, len);
    }
}

#[test]
fn many_packets_are_plain_and_many_are_not() {
    let count = (0..4000)
        .filter(|&seed| {
            let made = packets::packet(&mut Draw::new(&tape(seed, 400)));
            is_plain(&made.bytes, made.tag, made.length)
        })
        .count();
    assert!((100..3500).contains(&count), "{count}");
    let all = |bytes: Vec<u8>| is_plain(&bytes, None, u32::try_from(bytes.len()).unwrap());
    assert!(all(ethernet(0x0800, &v4(6, 0, &TCP))));
    assert!(all(ethernet(0x86dd, &v6(17, &udp(53, 9, &[])))));
    assert!(!all(ethernet(0x0800, &v4(17, 0, &udp(9, 4789, &[0; 60])))));
    assert!(!all(ethernet(0x0800, &v4(1, 0, &[0; 8]))));
    assert!(!all(ethernet(0x0800, &v4(17, 0x2000, &udp(9, 9, &[0; 8])))));
}

#[test]
fn only_the_mode_flow_has_the_straight_path() {
    for (mode, is_flow) in [
        ("flow", true),
        ("inner_flow", true),
        ("flow_4_tuple", false),
    ] {
        assert_eq!(is_of_mode(&flow(mode), "flow"), is_flow, "{mode}");
    }
}
