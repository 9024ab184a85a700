//! Topologies as bytes: written and read, damaged, and not topologies at all.

use super::*;
use proptest::prelude::*;

/// Any topology that nodes can follow.
fn topologies() -> impl Strategy<Value = Topology> {
    let seats = proptest::collection::btree_map(0_u8..128, any::<u16>(), 1..12);
    let address = (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port));
    let analyzers = proptest::collection::vec(address, 0..=ANALYZERS);
    let rest = (
        any::<u64>(),
        0_u8..4,
        any::<u32>(),
        any::<u64>(),
        any::<Option<u64>>(),
    );
    (seats, analyzers, rest).prop_map(|(weights, analyzers, (epoch, by, initial, a, b))| {
        let slots: Vec<Slot> = weights.keys().map(|&slot| Slot(slot)).collect();
        let table = |seed: u64| -> Box<Owners> {
            Box::new(std::array::from_fn(|bucket| {
                let at = (bucket as u64).wrapping_mul(seed | 1) >> 7;
                Some(slots[at as usize % slots.len()])
            }))
        };
        let owners = table(a);
        let seat = |(&slot, &weight)| Seat {
            slot: Slot(slot),
            node: NodeId(u32::from(slot) * 7919),
            weight,
        };
        let key = key(by).expect("a key of that number");
        Topology {
            epoch,
            selection: Selection { key, initial },
            seats: weights.iter().map(seat).collect(),
            heirs: b.map(table).filter(|heirs| *heirs != owners),
            owners,
            analyzers,
        }
    })
}

proptest! {
    #[test]
    fn a_topology_is_read_as_it_was_written(topology in topologies()) {
        let bytes = topology.encode();
        prop_assert!(bytes.len() <= MOST_ENCODED);
        let read = Topology::decode(&bytes);
        prop_assert_eq!(read.as_ref(), Ok(&topology));
        prop_assert_eq!(Topology::decode(&bytes[..bytes.len() - 1]), Err(DecodeError::Short));
        let longer = [&bytes[..], &[0]].concat();
        prop_assert_eq!(Topology::decode(&longer), Err(DecodeError::Long));
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
        if let Ok(read) = Topology::decode(&bytes) {
            prop_assert_eq!(read.encode(), bytes);
        }
    }

    #[test]
    fn bytes_of_others_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
        prop_assert!(Topology::decode(&bytes).is_err());
    }
}

#[test]
fn what_no_encoder_writes_is_refused() {
    let pair = Topology {
        epoch: 9,
        selection: Selection::default(),
        seats: vec![
            Seat {
                slot: Slot(1),
                node: NodeId(10),
                weight: 1,
            },
            Seat {
                slot: Slot(2),
                node: NodeId(20),
                weight: 1,
            },
        ],
        owners: Box::new([Some(Slot(1)); BUCKETS]),
        heirs: Some(Box::new([Some(Slot(2)); BUCKETS])),
        analyzers: Vec::new(),
    };
    let good = pair.encode();
    let refused = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Topology::decode(&bytes).expect_err("refused")
    };
    assert_eq!(refused(0, 2), DecodeError::Version(2));
    assert_eq!(refused(9, 5), DecodeError::Unknown);
    assert_eq!(refused(15, 2), DecodeError::Topology(TopologyError::Seats));
    assert_eq!(refused(30, 7), DecodeError::Topology(TopologyError::Owners));
    assert_eq!(refused(30 + BUCKETS, 2), DecodeError::Unknown);
    assert_eq!(refused(good.len() - 1, 1), DecodeError::Odd);
    assert_eq!(
        Topology::decode(&vec![0; MOST_ENCODED + 1]),
        Err(DecodeError::Long)
    );
}
