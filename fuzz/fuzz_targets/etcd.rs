//! Reads any bytes as keys and values of a cluster in etcd. The first byte selects the key, and the
//! other bytes are the value.
#![no_main]

use fanpcap_cluster::{DesiredState, NodeId};
use fanpcap_etcd::KeyValue;
use fanpcap_etcd::coordination::{CopyOfKeys, Names, view};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((first, value)) = input.split_first() else {
        return;
    };
    let names = Names::new("lab");
    let node = NodeId(7);
    let keys = [
        names.node(node),
        names.ack(node),
        names.topology(),
        names.desired(),
    ];
    let kv = KeyValue {
        key: keys[usize::from(first % 4)].clone(),
        value: value.to_vec(),
        ..KeyValue::default()
    };
    let keys = CopyOfKeys::from([(kv.key.clone(), kv)]);
    let _ = view(&names, &keys, &DesiredState::default());
});
