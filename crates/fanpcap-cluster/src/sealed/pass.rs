//! The node's side: asks for the token, seals with it, and checks what an analyzer answers.

use super::{Numbers, Refusal, append, check};
use crate::control::Keys;
use crate::record::{Head, Kind, decode_number, encode_number};

/// What an analyzer has said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The token: messages that are sealed from now on are accepted.
    Welcome,
    /// A message lacked the token. Ask for it.
    Ask,
    /// The first batch that the analyzer lacks.
    Ack(u64),
}

/// What lets a node's messages pass an analyzer's gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pass {
    /// 0: none yet.
    token: u64,
    sequence: u64,
    /// What the analyzer's answers must carry; 0: nothing was asked.
    nonce: u64,
    /// The greatest sequence among these.
    heard: u64,
}

impl Pass {
    /// Whether the analyzer has given a token.
    pub fn is_valid(&self) -> bool {
        self.token != 0
    }

    /// The message that asks for the token. `nonce` is drawn at random each time. A token that
    /// there is stays until another comes.
    pub fn ask(&mut self, keys: &Keys, head: &Head, nonce: u64) -> Vec<u8> {
        self.nonce = nonce | 1;
        self.heard = 0;
        let mut hello = encode_number(head, Kind::Hello, self.nonce);
        self.seal_with(keys, 0, &mut hello);
        hello
    }

    /// Seals a message.
    pub fn seal(&mut self, keys: &Keys, message: &mut Vec<u8>) {
        self.seal_with(keys, self.token, message);
    }

    fn seal_with(&mut self, keys: &Keys, token: u64, message: &mut Vec<u8>) {
        self.sequence += 1;
        let sequence = self.sequence;
        append(keys, Numbers { sequence, token }, message);
    }

    /// Takes what an analyzer has answered to messages with this head.
    ///
    /// # Errors
    ///
    /// Why it is not believed.
    pub fn hear(&mut self, keys: &Keys, head: &Head, bytes: &[u8]) -> Result<Heard, Refusal> {
        let (answered, message, numbers) = check(Some(keys), head.cluster, bytes)?;
        let of = |head: &Head| (head.node, head.boot, head.session);
        if of(&answered) != of(head) {
            return Err(Refusal::Foreign);
        }
        let number = decode_number(message, answered.kind).map_err(|_| Refusal::Foreign)?;
        match (answered.kind, number.1) {
            // Whoever repeats this makes the node ask, and nothing more.
            (Kind::Welcome, 0) => return Ok(Heard::Ask),
            (Kind::Welcome | Kind::Ack, _) => {}
            _ => return Err(Refusal::Foreign),
        }
        if self.nonce == 0 || numbers.token != self.nonce {
            return Err(Refusal::Stale);
        }
        if numbers.sequence <= self.heard {
            return Err(Refusal::Replay);
        }
        self.heard = numbers.sequence;
        if answered.kind == Kind::Ack {
            return Ok(Heard::Ack(number.1));
        }
        self.token = number.1;
        Ok(Heard::Welcome)
    }
}
