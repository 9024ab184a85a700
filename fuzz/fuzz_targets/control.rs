//! Reads any bytes as a control message with a valid seal. Either the decoder refuses the message,
//! or the decoded message is encoded as the same bytes.
#![no_main]

use fanpcap_cluster::control::{Assembly, Body, ClusterId, Envelope, Key, Keys, Message, State};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let keys = Keys {
        current: Key::new(vec![1; 32]).expect("32 bytes"),
        other: None,
    };
    let _ = Envelope::open(bytes, ClusterId(1), &keys);
    if let Ok(state) = State::decode(bytes) {
        assert_eq!(State::decode(&state.encode()), Ok(state));
    }
    let mut assembly = Assembly::default();
    for bytes in bytes.chunks(64) {
        let Some(message) = Message::decode(bytes) else {
            continue;
        };
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(again, bytes);
        let kind = message.kind;
        let Some(Ok(body)) = assembly.take(message).map(|list| Body::read(kind, &list)) else {
            continue;
        };
        assert_eq!(Body::read(kind, &body.list()), Ok(body));
    }
});
