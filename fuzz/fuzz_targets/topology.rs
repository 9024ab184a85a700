//! Any bytes as a cluster's topology: refused, or one that nodes can follow, written as it is read.
#![no_main]

use fanpcap_cluster::reshape::{self, Goal, Member};
use fanpcap_cluster::{NodeId, Topology};
use fanpcap_select::Selection;
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// Made once: it takes longer than to read it.
static GOOD: LazyLock<Vec<u8>> = LazyLock::new(good);

/// A topology of three nodes, as bytes.
fn good() -> Vec<u8> {
    let members = [1, 2, 3].map(|node| Member {
        node: NodeId(node),
        weight: 1,
    });
    let goal = Goal::new(None, &members, Selection::default(), &[]);
    reshape::first(&goal.expect("a goal")).encode()
}

fn check(bytes: &[u8]) {
    if let Ok(topology) = Topology::decode(bytes) {
        assert_eq!(topology.check(), Ok(()));
        assert_eq!(topology.encode(), bytes);
    }
}

// The bytes themselves, and as changes of a good topology: two for the place, one for the value.
// What goes beyond the end makes it longer.
fuzz_target!(|bytes: &[u8]| {
    check(bytes);
    let mut changed = GOOD.clone();
    for change in bytes.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([change[0], change[1]]));
        match changed.get_mut(at) {
            Some(byte) => *byte = change[2],
            None => changed.push(change[2]),
        }
    }
    check(&changed);
});
