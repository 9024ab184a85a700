//! Frames that a library returns one at a time, as filters see them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use fanpcap_ring::{CallRing, Called, Calls, Layout, Stamp, Vlan};

/// A library that returns one frame again and again.
struct Library {
    frame: Vec<u8>,
    is_sent: bool,
}

impl Calls for Library {
    fn take(&mut self) -> Option<Called<'_>> {
        Some(Called {
            wire_len: self.frame.len().try_into().unwrap(),
            bytes: &mut self.frame,
            stamp: Stamp::default(),
            is_sent: self.is_sent,
        })
    }
}

/// A frame of 60 bytes after two addresses and these words.
fn ring(words: &[u16], is_sent: bool) -> CallRing {
    let mut frame = vec![2; 12];
    frame.extend(words.iter().flat_map(|it| it.to_be_bytes()));
    frame.extend([0; 60]);
    let mut ring = CallRing::new(Box::new(Library { frame, is_sent }), 3);
    assert!(ring.is_ready());
    ring
}

#[test]
fn the_first_tag_is_the_one_that_packet_sockets_have_beside_the_frame() {
    let vlan = |tpid, tci| Some(Vlan { tpid, tci });
    for (words, tag, protocol) in [
        (&[0x0800][..], None, 0x0800),
        (&[0x8100, 100, 0x0800], vlan(0x8100, 100), 0x0800),
        (
            &[0x88a8, 200, 0x8100, 100, 0x0800],
            vlan(0x88a8, 200),
            0x8100,
        ),
        (&[0x9100, 100, 0x0800], None, 0x9100),
        // A length in the place of the protocol: `ETH_P_802_2`.
        (&[0x8100, 100, 46], vlan(0x8100, 100), 4),
    ] {
        for is_sent in [false, true] {
            let mut ring = ring(words, is_sent);
            let frame = ring.next_frame().unwrap().unwrap();
            assert_eq!(frame.tag_inside(), tag, "{words:x?}");
            assert_eq!(frame.vlan(), None);
            let link = frame.link();
            assert_eq!((link.protocol, link.ifindex), (protocol, 3), "{words:x?}");
            assert_eq!(link.pkttype, if is_sent { 4 } else { 0 });
            assert_eq!((frame.record_flags(), frame.filter()), (0, 0));
        }
    }
}

#[test]
fn a_tag_does_not_count_among_the_bytes_that_a_filter_keeps() {
    let cut = |words: &[u16], kept| {
        let mut ring = ring(words, false);
        let frame = ring.next_frame().unwrap().unwrap().cut(kept);
        (frame.captured(), frame.wire_len())
    };
    assert_eq!(cut(&[0x0800], 20), (20, 74));
    assert_eq!(cut(&[0x8100, 100, 0x0800], 20), (24, 78));
    assert_eq!(cut(&[0x8100, 100, 0x0800], 12), (16, 78));
    assert_eq!(cut(&[0x8100, 100, 0x0800], 11), (11, 74));
}
