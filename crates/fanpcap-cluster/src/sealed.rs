//! Seals between nodes and analyzers: who has the cluster's key is believed, and only once.
//!
//! A seal stands behind a message. All numbers are in network byte order.
//!
//! | Offset | Bytes | What |
//! | --- | --- | --- |
//! | 0 | 8 | sequence: counts what the sender has sealed for this receiver |
//! | 8 | 8 | token |
//! | 16 | 1 | version, 1 |
//! | 17 | 1 | the key's id |
//! | 18 | 6 | 0 |
//! | 24 | 32 | HMAC-SHA256 of the message and the 24 bytes before |
//!
//! A node asks an analyzer for a **token** by a `Hello`, which has a nonce. The analyzer's
//! `Welcome` has the token, and the nonce in its seal. The node's seals carry the token, so that
//! nothing counts that was recorded before the analyzer began. A window of sequence numbers stops
//! what was recorded since. Over TCP the analyzer seals its acknowledgements, with the nonce as
//! their token.

mod refusal;
mod gate;
mod pass;

use hmac::Mac;

use crate::control::{Keys, SEAL, first_eight};
use crate::record::{HEAD_BYTES, Head};

pub use gate::{Entry, Gate};
pub use pass::{Heard, Pass};
pub use refusal::Refusal;

/// Bytes of a seal.
pub const SEAL_BYTES: usize = NUMBERS + SEAL;

/// Bytes of a seal before its code.
const NUMBERS: usize = 24;

const VERSION: u8 = 1;

/// The fields of a seal besides its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Numbers {
    sequence: u64,
    token: u64,
}

/// Appends a seal to a message.
fn append(keys: &Keys, numbers: Numbers, message: &mut Vec<u8>) {
    message.reserve(SEAL_BYTES);
    for number in [numbers.sequence, numbers.token] {
        message.extend_from_slice(&number.to_be_bytes());
    }
    message.extend_from_slice(&[VERSION, keys.current.id(), 0, 0, 0, 0, 0, 0]);
    let code = keys.current.mac(message).finalize().into_bytes();
    message.extend_from_slice(&code);
}

/// Checks a seal. Returns the message's head, the message and the seal's numbers.
fn check<'a>(
    keys: Option<&Keys>,
    cluster: u64,
    bytes: &'a [u8],
) -> Result<(Head, &'a [u8], Numbers), Refusal> {
    let head = Head::decode(bytes).map_err(Refusal::of_head)?;
    if head.cluster != cluster {
        return Err(Refusal::Foreign);
    }
    if head.length == bytes.len() {
        return Err(Refusal::Unsealed);
    }
    if bytes.len() != head.length + SEAL_BYTES {
        return Err(Refusal::Foreign);
    }
    let (message, seal) = bytes.split_at(head.length);
    if seal[16] != VERSION {
        return Err(Refusal::Version);
    }
    if seal[18..NUMBERS] != [0; 6] {
        return Err(Refusal::Foreign);
    }
    let (sealed, code) = bytes.split_at(bytes.len() - SEAL);
    let keys = keys.ok_or(Refusal::Key)?;
    keys.check(seal[17], sealed, code).map_err(Refusal::of)?;
    let numbers = Numbers {
        sequence: first_eight(seal),
        token: first_eight(&seal[8..]),
    };
    Ok((head, message, numbers))
}

const _: () = assert!(HEAD_BYTES >= 8 && NUMBERS >= 16);

#[cfg(test)]
mod tests;
