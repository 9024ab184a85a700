//! The analyzer's side: lets in what is sealed rightly and new.

use std::collections::BTreeMap;

use hmac::Mac;

use super::{Numbers, Refusal, append, check};
use crate::control::{Keys, Window, first_eight, mac};
use crate::record::{Head, Kind, decode_number, encode_number};

/// Streams that a gate remembers. One more makes all tokens worthless, and senders ask anew.
const STREAMS: usize = 4096;

/// A sender's stream: node, boot, session, and whether it is of counts.
type Stream = (u32, u64, u64, bool);

/// What a gate makes of bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// A message that is believed.
    Message(&'a [u8]),
    /// Nothing to act on; this is to go to where the bytes came from.
    Answer(Vec<u8>),
    /// A message without the token. This is to go to where the bytes came from, so that a sender
    /// that is no replay asks for the token.
    Stale(Vec<u8>),
}

/// Lets in what is sealed rightly and new.
#[derive(Debug)]
pub struct Gate {
    cluster: u64,
    secret: [u8; 32],
    generation: u64,
    streams: BTreeMap<Stream, Window>,
    /// The nonce of the last hello, and how many messages were sealed for its sender.
    nonce: u64,
    sealed: u64,
}

impl Gate {
    /// A gate of a cluster's. `secret` is drawn at random for this gate and known to nobody else.
    pub fn new(cluster: u64, secret: [u8; 32]) -> Self {
        Self {
            cluster,
            secret,
            generation: 0,
            streams: BTreeMap::new(),
            nonce: 0,
            sealed: 0,
        }
    }

    /// Looks at a message with its seal. Without `keys` only messages without a seal are believed.
    ///
    /// # Errors
    ///
    /// Why it is not believed.
    pub fn open<'a>(&mut self, keys: Option<&Keys>, bytes: &'a [u8]) -> Result<Entry<'a>, Refusal> {
        let (head, message, numbers) = match (check(keys, self.cluster, bytes), keys) {
            (Err(Refusal::Unsealed), None) => return Ok(Entry::Message(bytes)),
            (Err(refusal), _) => return Err(refusal),
            (Ok(_), None) => return Err(Refusal::Key),
            (Ok(checked), Some(_)) => checked,
        };
        let keys = keys.ok_or(Refusal::Key)?;
        if head.kind == Kind::Hello {
            return self.welcome(keys, message).map(Entry::Answer);
        }
        if !matches!(head.kind, Kind::Records | Kind::Counts) {
            return Err(Refusal::Foreign);
        }
        if numbers.token != self.token(&head) {
            let mut answer = encode_number(&head, Kind::Welcome, 0);
            let none = Numbers {
                sequence: 0,
                token: 0,
            };
            append(keys, none, &mut answer);
            return Ok(Entry::Stale(answer));
        }
        let key = (
            head.node.0,
            head.boot,
            head.session,
            head.kind == Kind::Counts,
        );
        if self.streams.len() >= STREAMS && !self.streams.contains_key(&key) {
            self.streams.clear();
            self.generation += 1;
            return Err(Refusal::Stale);
        }
        match self.streams.entry(key).or_default().take(numbers.sequence) {
            true => Ok(Entry::Message(message)),
            false => Err(Refusal::Replay),
        }
    }

    /// Seals a message for the sender of the last hello, so that it knows it to be new.
    pub fn seal(&mut self, keys: &Keys, message: &mut Vec<u8>) {
        self.sealed += 1;
        let numbers = Numbers {
            sequence: self.sealed,
            token: self.nonce,
        };
        append(keys, numbers, message);
    }

    fn welcome(&mut self, keys: &Keys, hello: &[u8]) -> Result<Vec<u8>, Refusal> {
        let hello = decode_number(hello, Kind::Hello);
        let (head, nonce) = hello.map_err(|_| Refusal::Foreign)?;
        self.nonce = nonce;
        let mut answer = encode_number(&head, Kind::Welcome, self.token(&head));
        self.seal(keys, &mut answer);
        Ok(answer)
    }

    /// The token of a stream's sender; never 0.
    fn token(&self, head: &Head) -> u64 {
        let mut mac = mac(&self.secret, &head.node.0.to_be_bytes());
        for number in [head.boot, head.session, self.generation] {
            mac.update(&number.to_be_bytes());
        }
        first_eight(&mac.finalize().into_bytes()) | 1
    }
}
