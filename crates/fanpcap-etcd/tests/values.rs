//! Whatever bytes a key has in etcd, the view reads a valid value or leaves the key out.

use fanpcap_cluster::{DesiredState, NodeId};
use fanpcap_etcd::KeyValue;
use fanpcap_etcd::coordination::{CopyOfKeys, Names, view};
use proptest::prelude::*;

/// Pieces from which values are made, in any order.
fn pieces() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\"boot\":",
        "\"weight\":",
        "\"address\":",
        "\"a\"",
        "\"drained\":",
        "\"weights\":",
        "\"10.0.0.1:1\"",
        "-1",
        "7",
        "65536",
        "1e9",
        "null",
        "\\u",
    ]);
    let text = prop::collection::vec(piece, 0..20);
    let text = text.prop_map(|pieces| pieces.concat().into_bytes());
    prop_oneof![3 => text, 1 => any::<Vec<u8>>()]
}

proptest! {
    #[test]
    fn a_value_is_read_or_left_out(value in pieces(), which in 0..4_usize, revision: i64) {
        let names = Names::new("lab");
        let node = NodeId(7);
        let keys = [names.node(node), names.ack(node), names.topology(), names.desired()];
        let kv = KeyValue {
            key: keys[which].clone(),
            value,
            create_revision: revision,
            mod_revision: revision,
            lease: 0,
        };
        let keys = CopyOfKeys::from([(kv.key.clone(), kv)]);
        let view = view(&names, &keys, &DesiredState::default());
        prop_assert!(!view.leads && view.live.len() <= usize::from(which == 0));
        prop_assert!(view.live.iter().all(|one| one.announcement.node == node));
        prop_assert!(view.topology.is_none() || which == 2);
    }
}
