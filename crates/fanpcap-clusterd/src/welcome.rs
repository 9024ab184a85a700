//! How a node's datagrams get past an analyzer's gate: it asks for a token, and seals with it.

use std::time::{Duration, Instant};

use fanpcap_cluster::control::Keys;
use fanpcap_cluster::record::{ACK_BYTES, Head};
use fanpcap_cluster::sealed::{Heard, Pass, SEAL_BYTES};

use crate::keyring::random;

/// Answers that are taken at once: others may send more than an analyzer does.
pub(crate) const ANSWERS: usize = 64;

/// Bytes of a buffer for an answer: a longer datagram is not an answer.
pub(crate) const ANSWER: usize = ACK_BYTES + SEAL_BYTES + 1;

/// Between two questions for a token.
const ASK: Duration = Duration::from_millis(100);

/// A sender's access to one analyzer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    pass: Pass,
    asked: Option<Instant>,
    /// The token that there is was refused.
    is_stale: bool,
}

impl Access {
    /// Whether the analyzer has given a token.
    pub(crate) fn is_valid(&self) -> bool {
        self.pass.is_valid()
    }

    /// Takes what the analyzer has answered to messages with this head. Returns whether it is a
    /// token.
    pub(crate) fn hear(&mut self, keys: &Keys, head: &Head, answer: &[u8]) -> bool {
        match self.pass.hear(keys, head, answer) {
            Ok(Heard::Welcome) => {
                self.is_stale = false;
                true
            }
            Ok(Heard::Ask) => {
                self.is_stale = true;
                false
            }
            Ok(Heard::Ack(_)) | Err(_) => false,
        }
    }

    /// The question for a token, if it is lacking and was not asked for just now.
    pub(crate) fn ask(&mut self, keys: &Keys, head: &Head) -> Option<Vec<u8>> {
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= ASK);
        if self.pass.is_valid() && !self.is_stale || !is_due {
            return None;
        }
        self.asked = Some(Instant::now());
        let nonce = u64::from_ne_bytes(random().ok()?);
        Some(self.pass.ask(keys, head, nonce))
    }

    /// Seals a message.
    pub(crate) fn seal(&mut self, keys: &Keys, message: &mut Vec<u8>) {
        self.pass.seal(keys, message);
    }
}
