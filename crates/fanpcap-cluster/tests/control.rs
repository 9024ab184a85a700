//! The control protocol's encoder and decoder on generated messages, lists and random bytes.

use fanpcap_cluster::control::{
    Assembly, Avp, Cause, ClusterId, DATAGRAM, Envelope, Key, Keys, Kind, Message, Peer, Role,
    VERSION, divide,
};
use proptest::collection::vec;
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};

const CLUSTER: ClusterId = ClusterId(0x1234_5678_9abc_def0);

fn key(id: u8) -> Key {
    Key::new(vec![id; 32]).expect("32 bytes")
}

fn keys(current: u8, other: Option<u8>) -> Keys {
    Keys {
        current: key(current),
        other: other.map(key),
    }
}

fn avp() -> impl Strategy<Value = Avp> {
    (any::<u8>(), any::<u32>()).prop_map(|(code, value)| Avp { code, value })
}

prop_compose! {
    fn message()(
        kind in proptest::sample::select(Kind::ALL),
        avps in vec(avp(), 0..256),
    ) -> Message {
        Message { kind, avps }
    }
}

prop_compose! {
    fn envelope()(
        role in proptest::sample::select(&[Role::Node, Role::Coordinator, Role::Operator][..]),
        id in any::<u32>(),
        numbers in any::<[u64; 4]>(),
        message in message(),
    ) -> Envelope {
        let [session, sequence, echo, offer] = numbers;
        let sender = Peer { role, id };
        Envelope { version: VERSION, sender, session, sequence, echo, offer, message }
    }
}

/// A random list of AVPs, without `PART` (65) and `TRANSFER` (66), which only the parts of a
/// divided list have.
fn list() -> impl Strategy<Value = Vec<Avp>> {
    let plain = (70_u8..90, any::<u32>()).prop_map(|(code, value)| Avp { code, value });
    vec(plain, 0..2000)
}

proptest! {
    #[test]
    fn an_envelope_is_read_as_it_was_written(envelope in envelope()) {
        let bytes = envelope.seal(CLUSTER, &keys(1, None));
        prop_assert!(bytes.len() <= DATAGRAM);
        prop_assert_eq!(Envelope::open(&bytes, CLUSTER, &keys(2, Some(1))), Ok(envelope));
    }

    #[test]
    fn a_changed_bit_opens_nothing(envelope in envelope(), at in any::<prop::sample::Index>()) {
        let mut bytes = envelope.seal(CLUSTER, &keys(1, None));
        let bit = at.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(Envelope::open(&bytes, CLUSTER, &keys(1, Some(2))).is_err());
    }

    #[test]
    fn garbage_behind_a_right_header_opens_nothing(tail in vec(any::<u8>(), 0..1400)) {
        let id = [key(1).id(), 1, 0];
        let whole = [&b"fpcc\x01"[..], &id, &CLUSTER.0.to_be_bytes(), &tail].concat();
        prop_assert!(Envelope::open(&whole, CLUSTER, &keys(1, None)).is_err());
    }

    #[test]
    fn a_message_that_is_read_is_written_alike(bytes in vec(any::<u8>(), 0..1400)) {
        if let Some(message) = Message::decode(&bytes) {
            let mut again = Vec::new();
            message.encode(&mut again);
            prop_assert_eq!(again, bytes);
        }
    }

    /// A list is read from its parts, even if they come in any order, some come twice, and parts of
    /// an older list come between them.
    #[test]
    fn parts_make_the_list(
        list in list(),
        old in list(),
        order in vec((any::<prop::sample::Index>(), any::<bool>()), 0..60),
    ) {
        let [new, late] = [(&list, 7), (&old, 6)].map(|(of, transfer)| {
            divide(Kind::TopologyUpdate, of, transfer)
        });
        let mut assembly = Assembly::default();
        let mut whole = assembly.take(new[0].clone());
        for (at, is_late) in order {
            let from = if is_late && late.len() > 1 { &late } else { &new };
            whole = assembly.take(at.get(from).clone()).or(whole);
        }
        for message in new {
            whole = assembly.take(message).or(whole);
        }
        prop_assert_eq!(whole, Some(list));
    }
}

#[test]
fn a_million_inputs_are_refused_or_written_again() {
    // The inputs are made without proptest, because a million inputs then take only a second.
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut below = |end: usize| usize::try_from(random.next_u64()).expect("64 bits") % end;
    let mut read = 0;
    let mut again = Vec::new();
    let mut assembly = Assembly::default();
    for _ in 0..1_000_000 {
        let avps = below(8);
        let kind = Kind::ALL[below(Kind::ALL.len())] as u8;
        let mut bytes = vec![kind, u8::try_from(avps).expect("small")];
        bytes.extend((0..avps * 5).map(|_| u8::try_from(below(256)).expect("a byte")));
        if below(4) == 0 {
            let at = below(bytes.len());
            bytes[at] = u8::try_from(below(256)).expect("a byte");
        }
        if let Some(message) = Message::decode(&bytes) {
            read += 1;
            again.clear();
            message.encode(&mut again);
            assert_eq!(again, bytes);
            assembly.take(message);
        }
    }
    assert!((500_000..1_000_000).contains(&read), "{read}");
}

#[test]
fn what_is_wrong_with_a_datagram_is_named() {
    let sender = Peer {
        role: Role::Coordinator,
        id: 1,
    };
    let envelope = Envelope {
        version: VERSION,
        sender,
        session: 1,
        sequence: 1,
        echo: 0,
        offer: 0,
        message: Message::bare(Kind::Pulse),
    };
    let bytes = envelope.seal(CLUSTER, &keys(1, None));
    let open = |bytes: &[u8], cluster, id| Envelope::open(bytes, cluster, &keys(id, None));
    assert_eq!(open(&bytes[..50], CLUSTER, 1), Err(Cause::Foreign));
    assert_eq!(open(&[0; 1401], CLUSTER, 1), Err(Cause::Foreign));
    assert_eq!(open(&bytes, ClusterId(1), 1), Err(Cause::Foreign));
    assert_eq!(open(&bytes, CLUSTER, 2), Err(Cause::Key));
    let mut forged = bytes.clone();
    forged[40] ^= 1;
    assert_eq!(open(&forged, CLUSTER, 1), Err(Cause::Seal));
    assert!(Key::new(vec![9; 31]).is_none());
}

#[test]
fn more_parts_than_any_list_has_are_dropped() {
    let mut assembly = Assembly::default();
    let part = |value| Message {
        kind: Kind::Status,
        avps: vec![Avp { code: 65, value }, Avp { code: 66, value: 1 }],
    };
    assert_eq!(assembly.take(part(0x0000_ffff)), None);
    assert_eq!(assembly.take(part(0x0005_0005)), None);
    assert_eq!(assembly.take(part(0x0000_0000)), None);
    assert_eq!(assembly.take(part(0x0000_0001)), Some(Vec::new()));
}
