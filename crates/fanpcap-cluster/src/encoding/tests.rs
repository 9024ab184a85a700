//! Topologies as bytes: encoded and decoded, damaged, and bytes that are not topologies.

use super::*;
use proptest::prelude::*;

/// Any topology that nodes can follow.
fn topologies() -> impl Strategy<Value = Topology> {
    let entries = proptest::collection::btree_map(0_u8..128, any::<u16>(), 1..12);
    let address = (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port));
    let analyzers = proptest::collection::vec(address, 0..=ANALYZERS);
    let rest = (
        any::<u64>(),
        proptest::option::of(filters()),
        0_u8..4,
        any::<u32>(),
        any::<u64>(),
        any::<Option<u64>>(),
    );
    (entries, analyzers, rest).prop_map(
        |(weights, analyzers, (epoch, filter, by, initial, a, b))| {
            let slots: Vec<Slot> = weights.keys().map(|&slot| Slot(slot)).collect();
            let table = |seed: u64| -> Box<Owners> {
                Box::new(std::array::from_fn(|bucket| {
                    let at = (bucket as u64).wrapping_mul(seed | 1) >> 7;
                    Some(slots[at as usize % slots.len()])
                }))
            };
            let owners = table(a);
            let entry = |(&slot, &weight)| NodeEntry {
                slot: Slot(slot),
                node: NodeId(u32::from(slot) * 7919),
                weight,
            };
            let key = KEYS[usize::from(by)];
            Topology {
                epoch,
                selection: Selection { key, initial },
                nodes: weights.iter().map(entry).collect(),
                new_owners: b.map(table).filter(|new_owners| *new_owners != owners),
                owners,
                analyzers,
                filter,
            }
        },
    )
}

/// Any filter. Its code may be invalid.
fn filters() -> impl Strategy<Value = Filter> {
    let one = any::<(u16, u8, u8, u32)>().prop_map(|(code, jt, jf, k)| Classic { code, jt, jf, k });
    let code = proptest::collection::vec(one, 0..=FILTER_CODE);
    // `\PC`: no control characters.
    ("\\PC{0,99}", code).prop_map(|(text, code)| Filter { text, code })
}

proptest! {
    #[test]
    fn a_topology_is_read_as_it_was_written(topology in topologies()) {
        let bytes = topology.encode();
        prop_assert!(bytes.len() <= MOST_ENCODED);
        let read = Topology::decode(&bytes);
        prop_assert_eq!(read.as_ref(), Some(&topology));
        prop_assert_eq!(Topology::decode(&bytes[..bytes.len() - 1]), None);
        let longer = [&bytes[..], &[0]].concat();
        prop_assert_eq!(Topology::decode(&longer), None);
    }

    #[test]
    fn what_is_read_is_written_again(
        topology in topologies(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = topology.encode();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(read) = Topology::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes);
        }
    }

    #[test]
    fn bytes_of_others_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
        prop_assert_eq!(Topology::decode(&bytes), None);
    }
}

/// A union of two nodes. One node gets all buckets of the other.
fn pair() -> Topology {
    Topology {
        epoch: 9,
        selection: Selection::default(),
        nodes: vec![
            NodeEntry {
                slot: Slot(1),
                node: NodeId(10),
                weight: 1,
            },
            NodeEntry {
                slot: Slot(2),
                node: NodeId(20),
                weight: 1,
            },
        ],
        owners: Box::new([Some(Slot(1)); BUCKETS]),
        new_owners: Some(Box::new([Some(Slot(2)); BUCKETS])),
        analyzers: Vec::new(),
        filter: None,
    }
}

#[test]
fn only_a_filter_needs_the_newer_version() {
    let mut topology = pair();
    assert_eq!(topology.encode()[0], 1);
    topology.filter = Some(Filter {
        text: "ip".to_owned(),
        code: vec![Classic::keep(1); FILTER_CODE],
    });
    assert_eq!(topology.encode()[0], 2);
    assert_eq!(Topology::decode(&topology.encode()), Some(topology.clone()));
    let filter = topology.filter.as_mut().expect("a filter");
    filter.code.push(Classic::keep(1));
    assert_eq!(Topology::decode(&topology.encode()), None);
}

#[test]
fn a_filter_whose_text_has_lines_of_its_own_is_refused() {
    for (text, is_read) in [
        ("ip\tor ip6", true),
        ("ip\n0000002a  current", false),
        ("ip\r", false),
        ("\u{1b}[2J", false),
    ] {
        let filter = Filter {
            text: text.to_owned(),
            code: vec![Classic::keep(1)],
        };
        let topology = Topology {
            filter: Some(filter),
            ..pair()
        };
        let read = Topology::decode(&topology.encode());
        assert_eq!(read.is_some(), is_read, "{text:?}");
    }
}

#[test]
fn what_no_encoder_writes_is_refused() {
    let good = pair().encode();
    assert_eq!(Topology::decode(&good), Some(pair()));
    // Positions of bytes, and wrong values for them: the version, the key, a slot, an owner, the
    // phase, and a new owner that is the owner already.
    let others = [
        (0, 3),
        (9, 5),
        (15, 2),
        (30, 7),
        (30 + BUCKETS, 2),
        (good.len() - 1, 1),
    ];
    for (at, byte) in others {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert_eq!(Topology::decode(&bytes), None, "{at}");
    }
    assert_eq!(Topology::decode(&vec![0; MOST_ENCODED + 1]), None);
}
