//! Records of this node's packets: each is complete and has the right bucket. Packets that are lost
//! because a ring is full are counted.

use fanpcap_clusterd::selector::Selector;
use fanpcap_linux::wait::clock;
use fanpcap_ring::{LinkInfo, Records};
use fanpcap_select::native::{Node, Verdict};
use fanpcap_select::{Action, Claim, Claims, Key, Program, record};
use fanpcap_steer_testkit::{Draw, packets, tape};
use fanpcap_wire::Frame;

use super::agreement::program;
use super::both::elsewhere;

const BYTES: u16 = 80;
const RING_LEN: u32 = 1 << 16;

fn shipping() -> (Program, Selector, Node, Claims) {
    let program = Program {
        action: Action::Ship { bytes: BYTES },
        ..program(Key::Packet, 5)
    };
    let selector = Selector::load(&program, RING_LEN).unwrap();
    let mut node = Node::new(program.cluster, program.selection);
    let claims = Claims::new(|bucket| match bucket % 3 {
        0 => Claim::Elsewhere,
        1 => Claim::Mine,
        _ => Claim::Shared,
    });
    selector.switch(&claims, 0xdead_beef);
    node.switch(claims.clone(), 0xdead_beef);
    (program, selector, node, claims)
}

fn records(selector: &Selector) -> Records {
    let rings = selector.rings().iter().map(|ring| ring.map().unwrap());
    let link = LinkInfo {
        protocol: 0,
        ifindex: 0,
        hatype: 1,
        pkttype: 0,
    };
    Records::new(rings.collect(), &link, clock::realtime_offset_ns).unwrap()
}

fn drawn(seed: u64) -> Vec<u8> {
    packets::packet(&mut Draw::new(&tape(seed, 420))).bytes
}

#[test]
#[ignore = "needs root: eBPF"]
fn records_are_of_this_nodes_packets() {
    let (_, selector, mut node, _) = shipping();
    let mut records = records(&selector);
    let (mut shipped, mut short) = (0, 0);
    for seed in 0..10_000 {
        let bytes = drawn(seed);
        if selector.program().run(&bytes, &[], 1).is_err() {
            continue;
        }
        let frame = Frame {
            bytes: &bytes,
            tag: None,
        };
        let expected = match node.judge(&frame, 0) {
            Verdict::Packet { bucket, claim } if claim != Claim::Elsewhere => Some((bucket, claim)),
            Verdict::Packet { .. }
            | Verdict::Filtered { .. }
            | Verdict::Idle
            | Verdict::InLine(_) => None,
        };
        assert_eq!(records.open(), expected.is_some(), "{frame:02x?}");
        let Some((bucket, claim)) = expected else {
            continue;
        };
        let record = records.next_labelled().unwrap().unwrap();
        let found = record::flags_of(record.flags).unwrap();
        assert_eq!(found, (u16::try_from(bucket).unwrap(), claim));
        assert_eq!(record.last, 0xdead_beef);
        let kept = bytes.len().min(BYTES.into());
        assert_eq!(record.frame.data(), &bytes[..kept]);
        assert_eq!(record.frame.wire_len() as usize, bytes.len());
        shipped += 1;
        short += u32::from(bytes.len() < BYTES.into());
        records.release();
    }
    assert!(shipped > 5000 && short > 500, "{shipped}, {short}");
    let counts = selector.counts();
    assert_eq!(counts.captured.iter().sum::<u64>(), shipped);
    assert_eq!(
        (counts.causes.lost, counts.causes.shared),
        (0, node.causes().shared)
    );
}

#[test]
#[ignore = "needs root: eBPF"]
fn what_a_full_ring_loses_is_counted_for_its_bucket() {
    let (_, selector, mut node, claims) = shipping();
    let mut own = 0;
    for seed in 0..3000 {
        let bytes = drawn(seed);
        if selector.program().run(&bytes, &[], 1).is_ok() {
            let frame = Frame {
                bytes: &bytes,
                tag: None,
            };
            let verdict = node.judge(&frame, 0);
            own += u64::from(matches!(
                verdict,
                Verdict::Packet {
                    claim: Claim::Mine | Claim::Shared,
                    ..
                }
            ));
        }
    }
    let counts = selector.counts();
    // In the ring buffer, a record takes 8 bytes of the kernel, the record's head, and the frame's
    // bytes.
    let room = u64::from(RING_LEN) / (8 + record::HEAD as u64 + u64::from(BYTES));
    let captured: u64 = counts.captured.iter().sum();
    assert!(
        captured <= room && captured + 1 >= room,
        "{captured} of {room}"
    );
    assert_eq!(captured + counts.causes.lost, own);
    assert_eq!(elsewhere(&counts) + own, counts.seen.iter().sum::<u64>());
    // When the node gets other buckets, the counts of the packets that it captured before stay the
    // same.
    let other = Claims::new(|bucket| match claims.of(bucket) {
        Claim::Elsewhere => Claim::Mine,
        Claim::Mine | Claim::Shared => Claim::Elsewhere,
    });
    selector.switch(&other, 2);
    selector.switch(&other, 3);
    assert_eq!(selector.counts(), counts);
}
