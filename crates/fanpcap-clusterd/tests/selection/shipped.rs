//! Records of this node's packets: each is complete and has the right bucket. Packets that are lost
//! because the pool is full are counted.

use fanpcap_clusterd::selector::Selector;
use fanpcap_ring::pool::PoolShape;
use fanpcap_ring::pool::layout::{HEAD, SHORT, SPARE, last_offset};
use fanpcap_ring::{Layout as _, Pool};
use fanpcap_select::native::{Node, Verdict};
use fanpcap_select::{Action, Claim, Claims, Key, Program, record};
use fanpcap_steer_testkit::{Draw, packets, tape};
use fanpcap_wire::Frame;
use fanpcap_xdp::CLOCKS;

use super::agreement::program;
use super::both::elsewhere;

const BYTES: u16 = 80;

fn shape() -> PoolShape {
    fanpcap_xdp::pool_shape().unwrap()
}

fn shipping() -> (Selector, Node, Claims) {
    let shape = shape();
    let program = Program {
        action: Action::Ship {
            bytes: BYTES,
            shape,
        },
        ..program(Key::Packet, 5)
    };
    let selector = Selector::load(&program, Some(0)).unwrap();
    let mut node = Node::new(program.cluster, program.selection);
    let claims = Claims::new(|bucket| match bucket % 3 {
        0 => Claim::Elsewhere,
        1 => Claim::Mine,
        _ => Claim::Shared,
    });
    selector.switch(&claims, 0xdead_beef);
    node.switch(claims.clone(), 0xdead_beef);
    (selector, node, claims)
}

fn reader(selector: &Selector) -> Pool {
    Pool::new(selector.pool().unwrap().map().unwrap(), 0, CLOCKS)
}

fn drawn(seed: u64) -> Vec<u8> {
    packets::packet(&mut Draw::new(&tape(seed, 420))).bytes
}

#[test]
#[ignore = "needs root: eBPF"]
fn records_are_of_this_nodes_packets() {
    let (selector, mut node, _) = shipping();
    let mut records = reader(&selector);
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
        let record = records.next_frame().unwrap().unwrap();
        let found = record::flags_of(record.record_flags()).unwrap();
        assert_eq!(found, (u16::try_from(bucket).unwrap(), claim));
        assert_eq!(record.filter(), 0xdead_beef);
        let kept = bytes.len().min(BYTES.into());
        assert_eq!(record.data(), &bytes[..kept]);
        assert_eq!(record.wire_len() as usize, bytes.len());
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
fn what_a_full_pool_loses_is_counted_for_its_bucket() {
    let (selector, mut node, claims) = shipping();
    let (least, most) = room(&selector);
    let mut own = 0;
    for bytes in (0..).map(drawn) {
        if own > most + 5000 {
            break;
        }
        let frame = Frame {
            bytes: &bytes,
            tag: None,
        };
        let times = 120;
        if bytes.len() < BYTES.into() || selector.program().run(&bytes, &[], times).is_err() {
            continue;
        }
        let verdict = node.judge(&frame, 0);
        let is_own = matches!(
            verdict,
            Verdict::Packet {
                claim: Claim::Mine | Claim::Shared,
                ..
            }
        );
        own += u64::from(times) * u64::from(is_own);
    }
    let counts = selector.counts();
    let captured: u64 = counts.captured.iter().sum();
    assert!((least..=most).contains(&captured), "{captured} of {most}");
    assert_eq!(captured + counts.causes.lost, own);
    assert_eq!(elsewhere(&counts) + own, counts.seen.iter().sum::<u64>());
    let mut records = reader(&selector);
    assert!(records.open());
    let shipped = std::iter::from_fn(|| records.next_frame().unwrap().map(drop)).count();
    assert_eq!(shipped as u64, captured);
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

/// How many records fit into the pool, at least and at most. When no block is free, the last blocks
/// of all CPUs but one may be nearly empty.
fn room(selector: &Selector) -> (u64, u64) {
    let block_len = shape().block_len();
    let record = HEAD + SPARE + u32::from(BYTES);
    let in_block = u64::from(last_offset(block_len, SHORT) / record + 1);
    // One block has the words.
    let blocks = selector.pool().unwrap().size() as u64 / u64::from(block_len) - 1;
    let lanes = u64::from(shape().lanes());
    (
        (blocks + 1).saturating_sub(lanes) * in_block,
        blocks * in_block,
    )
}
