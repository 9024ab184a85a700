//! Reads any bytes as a message of a member and of a poller. Either the decoder refuses the
//! message, or the decoded message is encoded as the same bytes.
#![no_main]

use fanpcap_poll::message::{Answer, Request};
use libfuzzer_sys::fuzz_target;

/// The head of a message of this kind.
fn head(kind: u8) -> Vec<u8> {
    [b"fanp\x01\0", &[kind, 0][..]].concat()
}

fn judge(bytes: Vec<u8>) {
    if let Ok(request) = Request::decode(&bytes) {
        assert_eq!(request.encode().as_ref(), Ok(&bytes));
    }
    if let Ok(answer) = Answer::decode(&bytes) {
        assert_eq!(answer.encode(), Ok(bytes));
    }
}

// Tries the bytes themselves, and the bytes behind the head of each kind.
fuzz_target!(|bytes: &[u8]| {
    judge(bytes.to_vec());
    for kind in [1, 2, 3, 16, 17, 19, 20, 32, 33, 34] {
        judge([head(kind), bytes.to_vec()].concat());
    }
});
