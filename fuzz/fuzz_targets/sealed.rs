//! Any bytes as a sealed message or as an analyzer's answer are refused, because nobody can guess a
//! seal. A message with a valid seal is accepted once, and never with a changed byte.
#![no_main]

use fanpcap_cluster::NodeId;
use fanpcap_cluster::control::{Key, Keys};
use fanpcap_cluster::record::{HEAD_BYTES, Head, Kind, encode_number};
use fanpcap_cluster::sealed::{Entry, Gate, Heard, Pass, Refusal};
use libfuzzer_sys::fuzz_target;

const HEAD: Head = Head {
    kind: Kind::Records,
    length: 0,
    cluster: 7,
    node: NodeId(2),
    boot: 3,
    session: 4,
};

fn keys() -> Keys {
    Keys {
        current: Key::new(vec![1; 32]).expect("32 bytes"),
        other: None,
    }
}

fn forged(keys: &Keys, bytes: &[u8]) {
    let mut gate = Gate::new(HEAD.cluster, [1; 32]);
    assert!(gate.open(Some(keys), bytes).is_err());
    if let Ok(entry) = gate.open(None, bytes) {
        assert_eq!(entry, Entry::Message(bytes));
    }
    assert!(Pass::default().hear(keys, &HEAD, bytes).is_err());
}

/// A message with these bytes after its header.
fn message(bytes: &[u8]) -> Vec<u8> {
    let mut message = encode_number(&HEAD, Kind::Records, 0);
    message.truncate(HEAD_BYTES);
    message.extend(bytes);
    let length = u32::try_from(message.len()).expect("a short input");
    message[8..12].copy_from_slice(&length.to_be_bytes());
    message
}

// The first two bytes select the byte of the sealed message that changes, the third byte selects
// the change.
fuzz_target!(|bytes: &[u8]| {
    let keys = keys();
    forged(&keys, bytes);
    let [high, low, change, content @ ..] = bytes else {
        return;
    };
    let (mut gate, mut pass) = (Gate::new(HEAD.cluster, [1; 32]), Pass::default());
    let hello = pass.ask(&keys, &HEAD, 5);
    let Ok(Entry::Answer(answer)) = gate.open(Some(&keys), &hello) else {
        panic!("a hello is answered");
    };
    assert_eq!(pass.hear(&keys, &HEAD, &answer), Ok(Heard::Welcome));
    let message = message(content);
    let mut sealed = message.clone();
    pass.seal(&keys, &mut sealed);
    let at = usize::from(u16::from_be_bytes([*high, *low])) % sealed.len();
    sealed[at] ^= change;
    if *change != 0 {
        assert!(gate.open(Some(&keys), &sealed).is_err());
        sealed[at] ^= change;
    }
    assert_eq!(
        gate.open(Some(&keys), &sealed),
        Ok(Entry::Message(&message))
    );
    assert_eq!(gate.open(Some(&keys), &sealed), Err(Refusal::Replay));
    assert!(pass.hear(&keys, &HEAD, &sealed).is_err());
});
