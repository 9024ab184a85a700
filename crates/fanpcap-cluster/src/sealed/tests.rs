//! What is forged, changed, recorded or without a key does not pass.

use proptest::prelude::*;

use super::*;
use crate::control::Key;
use crate::identity::{NodeId, Revision};
use crate::record::{BatchBuilder, Kind, Record, encode_ack};

const CLUSTER: u64 = 7;

fn head() -> Head {
    Head {
        kind: Kind::Records,
        length: 0,
        cluster: CLUSTER,
        node: NodeId(2),
        boot: 3,
        session: 4,
    }
}

fn keys(bytes: &[u8]) -> Keys {
    let mut all = bytes.iter().map(|byte| Key::new(vec![*byte; 32]).unwrap());
    Keys {
        current: all.next().unwrap(),
        other: all.next(),
    }
}

/// A message with records, as a node sends it.
fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new(head(), 1400, 1);
    for stamp in 0..20 {
        let record = Record {
            stamp,
            wire_length: 60,
            bucket: 9,
            marked: false,
            captured: &[5; 52],
        };
        assert_eq!(builder.push(Revision(1), &record), None);
    }
    builder.flush().unwrap()
}

fn welcomed(gate: &mut Gate, keys: &Keys) -> Pass {
    let mut pass = Pass::default();
    let hello = pass.ask(keys, &head(), 99);
    let Ok(Entry::Answer(answer)) = gate.open(Some(keys), &hello) else {
        panic!("no welcome");
    };
    assert_eq!(pass.hear(keys, &head(), &answer), Ok(Heard::Welcome));
    pass
}

fn sealed(pass: &mut Pass, keys: &Keys) -> Vec<u8> {
    let mut message = batch();
    pass.seal(keys, &mut message);
    message
}

#[test]
fn each_sealed_message_passes_once() {
    let (mut gate, keys) = (Gate::new(CLUSTER, [1; 32]), keys(&[1]));
    let mut pass = welcomed(&mut gate, &keys);
    let first = sealed(&mut pass, &keys);
    let second = sealed(&mut pass, &keys);
    for message in [&second, &first] {
        let opened = gate.open(Some(&keys), message);
        assert_eq!(opened, Ok(Entry::Message(&batch()[..])));
    }
    for message in [&second, &first] {
        assert_eq!(gate.open(Some(&keys), message), Err(Refusal::Replay));
    }
}

#[test]
fn a_recording_is_worthless_at_an_analyzer_that_was_started_anew() {
    let keys = keys(&[1]);
    let mut gate = Gate::new(CLUSTER, [1; 32]);
    let mut pass = Pass::default();
    let hello = pass.ask(&keys, &head(), 99);
    let Ok(Entry::Answer(answer)) = gate.open(Some(&keys), &hello) else {
        panic!("no welcome");
    };
    pass.hear(&keys, &head(), &answer).unwrap();
    let message = sealed(&mut pass, &keys);
    let mut gate = Gate::new(CLUSTER, [2; 32]);
    // The hello as well: whoever repeats it does not get to the token by it.
    for recorded in [&hello, &message] {
        assert!(!matches!(
            gate.open(Some(&keys), recorded),
            Ok(Entry::Message(_))
        ));
    }
    let Ok(Entry::Stale(answer)) = gate.open(Some(&keys), &message) else {
        panic!("not stale");
    };
    assert_eq!(pass.hear(&keys, &head(), &answer), Ok(Heard::Ask));
    // The node asks anew, and does not take the welcome of another time.
    let hello = pass.ask(&keys, &head(), 1001);
    let Ok(Entry::Answer(welcome)) = gate.open(Some(&keys), &hello) else {
        panic!("no welcome");
    };
    let mut other = pass;
    other.ask(&keys, &head(), 2001);
    assert_eq!(other.hear(&keys, &head(), &welcome), Err(Refusal::Stale));
    assert_eq!(pass.hear(&keys, &head(), &welcome), Ok(Heard::Welcome));
    assert_eq!(pass.hear(&keys, &head(), &welcome), Err(Refusal::Replay));
    let message = sealed(&mut pass, &keys);
    gate.open(Some(&keys), &message).unwrap();
}

#[test]
fn keys_change_without_an_interruption() {
    let (old, both, new) = (keys(&[1]), keys(&[2, 1]), keys(&[2]));
    let mut gate = Gate::new(CLUSTER, [1; 32]);
    let mut pass = welcomed(&mut gate, &old);
    for (sender, receiver, passes) in [
        (&old, &both, true),
        (&both, &both, true),
        (&new, &both, true),
        (&both, &new, true),
        (&old, &new, false),
    ] {
        let message = sealed(&mut pass, sender);
        let opened = gate.open(Some(receiver), &message);
        assert_eq!(opened == Ok(Entry::Message(&batch()[..])), passes);
        assert!(passes || opened == Err(Refusal::Key));
    }
}

#[test]
fn sides_without_a_key_believe_only_each_other() {
    let keys = keys(&[1]);
    let mut gate = Gate::new(CLUSTER, [1; 32]);
    let mut pass = welcomed(&mut gate, &keys);
    let message = sealed(&mut pass, &keys);
    assert_eq!(gate.open(None, &message), Err(Refusal::Key));
    assert_eq!(gate.open(Some(&keys), &batch()), Err(Refusal::Unsealed));
    let batch = batch();
    assert_eq!(gate.open(None, &batch), Ok(Entry::Message(&batch[..])));
}

#[test]
fn acknowledgements_are_the_analyzers_and_new() {
    let (mut gate, keys) = (Gate::new(CLUSTER, [1; 32]), keys(&[1]));
    let mut pass = welcomed(&mut gate, &keys);
    let mut ack = encode_ack(&head(), 5);
    gate.seal(&keys, &mut ack);
    assert_eq!(pass.hear(&keys, &head(), &ack), Ok(Heard::Ack(5)));
    assert_eq!(pass.hear(&keys, &head(), &ack), Err(Refusal::Replay));
    // A node's own messages are no answers, nor are those of another connection.
    let own = sealed(&mut pass, &keys);
    assert_eq!(pass.hear(&keys, &head(), &own), Err(Refusal::Foreign));
    let mut other = Gate::new(CLUSTER, [1; 32]);
    let mut ack = encode_ack(&head(), 500);
    other.seal(&keys, &mut ack);
    assert_eq!(pass.hear(&keys, &head(), &ack), Err(Refusal::Stale));
    // An analyzer's answer is no message of a node's.
    assert_eq!(gate.open(Some(&keys), &ack), Err(Refusal::Foreign));
}

#[test]
fn more_senders_than_a_gate_remembers_ask_anew() {
    let (mut gate, keys) = (Gate::new(CLUSTER, [1; 32]), keys(&[1]));
    let mut old = welcomed(&mut gate, &keys);
    let first = sealed(&mut old, &keys);
    gate.open(Some(&keys), &first).unwrap();
    let mut refused = 0;
    for session in 100..4200 {
        let head = Head { session, ..head() };
        let mut pass = Pass::default();
        let hello = pass.ask(&keys, &head, 99);
        let Ok(Entry::Answer(answer)) = gate.open(Some(&keys), &hello) else {
            panic!("no welcome");
        };
        pass.hear(&keys, &head, &answer).unwrap();
        let mut message = BatchBuilder::new(head, 1400, 1)
            .idle(Revision(1), 1)
            .unwrap();
        pass.seal(&keys, &mut message);
        refused += u32::from(gate.open(Some(&keys), &message) == Err(Refusal::Stale));
    }
    assert_eq!(refused, 1);
    assert!(matches!(
        gate.open(Some(&keys), &first),
        Ok(Entry::Stale(_))
    ));
}

proptest! {
    #[test]
    fn no_changed_bit_passes(bit in 0..(batch().len() + SEAL_BYTES) * 8) {
        let (mut gate, keys) = (Gate::new(CLUSTER, [1; 32]), keys(&[1]));
        let mut pass = welcomed(&mut gate, &keys);
        let mut message = sealed(&mut pass, &keys);
        message[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(gate.open(Some(&keys), &message).is_err());
    }

    #[test]
    fn no_bytes_pass_or_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut gate, keys) = (Gate::new(CLUSTER, [1; 32]), keys(&[1]));
        prop_assert!(gate.open(Some(&keys), &bytes).is_err());
        prop_assert!(Pass::default().hear(&keys, &head(), &bytes).is_err());
    }

    /// Behind the right head, of any kind: what has no right seal is refused.
    #[test]
    fn no_forged_seal_passes(
        kind in 1..6u8,
        body in proptest::collection::vec(any::<u8>(), 0..64),
        seal in proptest::collection::vec(any::<u8>(), SEAL_BYTES),
    ) {
        let (mut gate, keys) = (Gate::new(CLUSTER, [1; 32]), keys(&[1]));
        let mut message = encode_ack(&head(), 0);
        message.truncate(HEAD_BYTES);
        message[5] = kind;
        message.extend(&body);
        let length = u32::try_from(message.len()).unwrap();
        message[8..12].copy_from_slice(&length.to_be_bytes());
        prop_assert_eq!(gate.open(Some(&keys), &message), Err(Refusal::Unsealed));
        message.extend(&seal);
        let at = message.len() - SEAL;
        message[at - 8] = VERSION;
        message[at - 7] = keys.current.id();
        message[at - 6..at].fill(0);
        prop_assert_eq!(gate.open(Some(&keys), &message), Err(Refusal::Seal));
    }
}
