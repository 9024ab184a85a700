//! Any bytes as a sealed message or as an analyzer's answer: refused, as nobody guesses a seal.
#![no_main]

use fanpcap_cluster::NodeId;
use fanpcap_cluster::control::{Key, Keys};
use fanpcap_cluster::record::{Head, Kind};
use fanpcap_cluster::sealed::{Entry, Gate, Pass};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let keys = Keys {
        current: Key::new(vec![1; 32]).expect("32 bytes"),
        other: None,
    };
    let head = Head {
        kind: Kind::Records,
        length: 0,
        cluster: 7,
        node: NodeId(2),
        boot: 3,
        session: 4,
    };
    let mut gate = Gate::new(head.cluster, [1; 32]);
    assert!(gate.open(Some(&keys), bytes).is_err());
    if let Ok(entry) = gate.open(None, bytes) {
        assert_eq!(entry, Entry::Message(bytes));
    }
    assert!(Pass::default().hear(&keys, &head, bytes).is_err());
});
