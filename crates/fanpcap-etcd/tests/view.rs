//! Keys and values that a hostile node or a later version might write must not confuse a
//! coordinator.

use fanpcap_cluster::{DesiredState, NODES, NodeId};
use fanpcap_etcd::KeyValue;
use fanpcap_etcd::coordination::{CopyOfKeys, Names, notes, view};
use proptest::prelude::*;

/// A value such as the cluster stores in etcd, valid or not, or random bytes.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let address = prop::sample::select(vec!["10.0.0.1:1", "[::1]:9", "10.0.0.1", ""]);
    let node = (any::<u64>(), any::<i32>(), address).prop_map(|(boot, weight, address)| {
        format!(r#"{{"boot":"{boot:x}","weight":{weight},"address":"{address}"}}"#).into_bytes()
    });
    prop_oneof![
        4 => node,
        1 => "[0-9]{0,25}".prop_map(String::into_bytes),
        1 => any::<Vec<u8>>(),
    ]
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let known = prop::sample::select(vec!["topology", "desired", "coord/1", "ack/00000001"]);
    let name = prop_oneof![
        6 => (0..400_u32).prop_map(|node| format!("nodes/{node:08x}")),
        1 => known.prop_map(str::to_owned),
        1 => "[a-z/]{0,10}",
    ];
    name.prop_map(|name| format!("/fanpcap/lab/{name}").into_bytes())
}

proptest! {
    #[test]
    fn a_view_is_bounded_and_in_order(
        entries in prop::collection::vec((key(), value(), any::<i64>()), 0..300),
    ) {
        let names = Names::new("lab");
        let keys: CopyOfKeys = entries
            .into_iter()
            .map(|(key, value, create_revision)| {
                let kv = KeyValue { key: key.clone(), value, create_revision, ..KeyValue::default() };
                (key, kv)
            })
            .collect();
        let view = view(&names, &keys, &DesiredState::default());
        prop_assert!(!view.leads && view.live.len() <= NODES);
        let ids: Vec<NodeId> = view.live.iter().map(|one| one.announcement.node).collect();
        prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        for live in &view.live {
            prop_assert!(keys.contains_key(&names.node(live.announcement.node)));
        }
    }
}

#[test]
fn an_intruder_with_many_nodes_displaces_nobody() {
    let names = Names::new("lab");
    let node = |id: u32, create_revision| KeyValue {
        key: names.node(NodeId(id)),
        value: br#"{"boot":"1","weight":1,"address":"10.0.0.1:1"}"#.to_vec(),
        create_revision,
        ..KeyValue::default()
    };
    let intruders = (0..1000).map(|id| node(id, 100 + i64::from(id)));
    let kvs = intruders.chain([node(5000, 3)]);
    let keys: CopyOfKeys = kvs.map(|kv| (kv.key.clone(), kv)).collect();
    let view = view(&names, &keys, &DesiredState::default());
    assert_eq!(view.live.len(), NODES);
    assert_eq!(view.live[NODES - 1].announcement.node, NodeId(5000));
}

#[test]
fn a_topology_of_a_later_version_is_told() {
    let names = Names::new("lab");
    let key = names.topology();
    let kv = KeyValue {
        key: key.clone(),
        value: vec![9; 40],
        mod_revision: 7,
        ..KeyValue::default()
    };
    let keys = CopyOfKeys::from([(key, kv)]);
    let said = notes(&names, &keys);
    assert!(
        matches!(&said[..], [one] if one.starts_with("topology 7 can't be read")),
        "{said:?}"
    );
}
