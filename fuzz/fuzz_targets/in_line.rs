//! A node gets frames that look like the coordinator's beacons. The node accepts a frame once, and
//! only if the coordinator has announced the frame's number.
#![no_main]

use fanpcap_select::in_line::{InLine, Kind};
use fanpcap_select::native::{Node, Verdict};
use fanpcap_select::{Claim, Claims, Selection};
use fanpcap_wire::Frame;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

const BEACON: InLine = InLine {
    kind: Kind::Beacon,
    cluster: 7,
    sequence: 5,
    time_ns: 1,
    number: 0x1122_3344_5566_7788,
};

/// A node to which the coordinator has announced the beacon.
static NODE: LazyLock<Node> = LazyLock::new(|| {
    let mut node = Node::new(BEACON.cluster, Selection::default());
    node.switch(Claims::new(|_| Claim::Mine), 1);
    node.announce(BEACON.kind, BEACON.sequence, BEACON.number);
    node
});

fn judge(bytes: &[u8]) {
    let mut node = NODE.clone();
    let frame = Frame { bytes, tag: None };
    if node.judge(&frame, 1) == Verdict::InLine(Kind::Beacon) {
        let number = BEACON.number.to_be_bytes();
        assert!(bytes.windows(number.len()).any(|part| part == number));
    }
    for now in 2..4 {
        let again = node.judge(&frame, now);
        assert!(matches!(
            again,
            Verdict::Packet {
                bucket: 0..4096,
                claim: Claim::Mine
            }
        ));
    }
}

// Tries the bytes themselves as a frame. Then tries the bytes after the first as changes of a
// beacon: the first byte is the length to which the beacon is cut. Each change has one byte for the
// place and one for the value.
fuzz_target!(|bytes: &[u8]| {
    judge(bytes);
    let Some((length, changes)) = bytes.split_first() else {
        return;
    };
    let mut beacon = BEACON.encode([0xff; 6], [2; 6]);
    for change in changes.chunks_exact(2) {
        if let Some(byte) = beacon.get_mut(usize::from(change[0])) {
            *byte = change[1];
        }
    }
    judge(&beacon[..beacon.len().min(usize::from(*length))]);
});
