//! Reads any bytes as a cluster's topology. Either the decoder refuses the bytes, or it returns a
//! topology that nodes can follow and that is encoded as the same bytes.
#![no_main]

use fanpcap_cluster::reshape::{ChangeTarget, Member};
use fanpcap_cluster::{NodeId, Topology};
use fanpcap_select::Selection;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// Two valid topologies as bytes. They are made once, because making them takes longer than reading
/// them.
static GOOD: LazyLock<[Vec<u8>; 2]> = LazyLock::new(good);

/// A topology of three nodes, and a union that begins a change of this topology, as bytes.
fn good() -> [Vec<u8>; 2] {
    let members = [1, 2, 3].map(|node| Member {
        node: NodeId(node),
        weight: 1,
    });
    let target = ChangeTarget::new(None, &members, Selection::default(), &[], None);
    let ChangeTarget(stable) = target.expect("a goal");
    let mut new_owners = stable.owners.clone();
    let slots = stable.nodes.iter().map(|entry| Some(entry.slot));
    new_owners[0] = slots.rev().find(|slot| *slot != new_owners[0]).flatten();
    let union = Topology {
        new_owners: Some(new_owners),
        ..stable.clone()
    };
    let good = [stable.encode(), union.encode()];
    assert!(good.iter().all(|bytes| Topology::decode(bytes).is_some()));
    good
}

fn check(bytes: &[u8]) {
    if let Some(topology) = Topology::decode(bytes) {
        assert_eq!(topology.encode(), bytes);
    }
}

// Tries the bytes as a topology, and then as changes of a valid topology. The first byte selects
// the valid topology. Each change has two bytes for the position and one for the new value. A
// position beyond the end makes the topology longer.
fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let Some((which, changes)) = bytes.split_first() else {
        return;
    };
    let mut changed = GOOD[usize::from(which % 2)].clone();
    for change in changes.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]]));
        match changed.get_mut(at) {
            Some(byte) => *byte = change[2],
            None => changed.push(change[2]),
        }
    }
    check(&changed);
});
