//! The envelope of a control message: sender, session and sequence, sealed with the cluster's key.
//!
//! All numbers are big-endian. The message comes after the header. The seal (HMAC-SHA256 over all
//! bytes before the seal) ends the datagram.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use super::message::{AVPS, Message};

const MAGIC: [u8; 4] = *b"fpcc";

/// The protocol's version in this build.
pub const VERSION: u8 = 1;

/// How many bytes come before the message.
const HEADER: usize = 52;

/// Bytes of the seal.
pub(crate) const SEAL: usize = 32;

/// The maximum number of bytes in a datagram: with a tunnel's headers, it fits an Ethernet frame.
pub const DATAGRAM: usize = 1400;

const _: () = assert!(HEADER + 2 + AVPS * 5 + SEAL <= DATAGRAM);

/// Distinguishes clusters on one network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterId(pub u64);

impl ClusterId {
    /// The id of the cluster with this name: the first bytes of the name's SHA-256.
    pub fn of_name(name: &str) -> Self {
        Self(first_eight(&Sha256::digest(name)))
    }
}

/// The role of a participant in the control protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// A capture node.
    Node = 1,
    /// A coordinator, active or standby.
    Coordinator = 2,
    /// A command of the operator.
    Operator = 3,
}

/// A participant of the control protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Peer {
    /// The participant's role.
    pub role: Role,
    /// The participant's number in that role. For a node, this is its node id.
    pub id: u32,
}

/// A secret that all participants of a cluster share.
#[derive(Clone)]
pub struct Key {
    id: u8,
    /// The state of HMAC-SHA256 with the secret, before any data.
    mac: Hmac<Sha256>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

/// The minimum number of bytes in a key: the length of HMAC-SHA256's result (RFC 2104, 3).
pub const KEY_BYTES: usize = 32;

impl Key {
    /// The key with these bytes; `None` if there are fewer than [`KEY_BYTES`].
    pub fn new(secret: Vec<u8>) -> Option<Self> {
        let id = mac(&secret, b"key id").finalize().into_bytes()[0];
        let mac = mac(&secret, b"");
        (secret.len() >= KEY_BYTES).then_some(Self { id, mac })
    }

    /// The key's id: eight bits of its digest. The keys of a cluster usually have different ids.
    pub fn id(&self) -> u8 {
        self.id
    }

    /// A secret for another purpose, which only holders of the key can compute.
    pub fn derive(&self, purpose: &[u8]) -> [u8; 32] {
        self.mac(purpose).finalize().into_bytes().into()
    }

    /// The state of HMAC-SHA256 after `bytes`. More bytes may follow.
    pub(crate) fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        self.mac.clone().chain_update(bytes)
    }
}

/// The keys of a cluster: one that seals, and one that is also valid while keys are changed.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The key that seals messages, and also opens them.
    pub current: Key,
    /// Only opens messages.
    pub other: Option<Key>,
}

impl Keys {
    /// Checks that `seal` is the seal of `sealed` by the key with the id `id`.
    pub(crate) fn check(&self, id: u8, sealed: &[u8], seal: &[u8]) -> Result<(), Cause> {
        let all = [Some(&self.current), self.other.as_ref()];
        let mut keys = all
            .into_iter()
            .flatten()
            .filter(|key| key.id == id)
            .peekable();
        if keys.peek().is_none() {
            return Err(Cause::Key);
        }
        match keys.any(|key| key.mac(sealed).verify_slice(seal).is_ok()) {
            true => Ok(()),
            false => Err(Cause::Seal),
        }
    }
}

/// A message with the fields of its envelope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// The version of the protocol in which the message is written.
    pub version: u8,
    /// The sender.
    pub sender: Peer,
    /// The sender's session: a random number that the process makes when it starts.
    pub session: u64,
    /// Counts the sender's messages in this session.
    pub sequence: u64,
    /// The token that the receiver last gave the sender; 0 if it gave none.
    pub echo: u64,
    /// The token that the sender gives the receiver; 0 if it gives none.
    pub offer: u64,
    /// The message.
    pub message: Message,
}

/// Why a datagram was refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// The datagram is not a control message of this cluster, or is too long.
    Foreign = 0,
    /// The message is sealed with a key that is not valid here.
    Key = 1,
    /// The seal is wrong: the message was forged or changed.
    Seal = 2,
    /// The seal is right, but this version can't read the message.
    Body = 3,
    /// The message is a repeat.
    Replay = 4,
    /// The message may be old. The sender is challenged.
    Stale = 5,
    /// The message's version is not supported.
    Version = 6,
    /// The message's term is too far above the greatest known term to be a coordinator's term.
    Term = 7,
}

impl Cause {
    /// The causes' names in JSON and metrics, by their numbers.
    pub const NAMES: [&str; 8] = [
        "foreign", "key", "seal", "body", "replay", "stale", "version", "term",
    ];

    /// Words for what is wrong with a refused datagram, in the order of the causes' numbers.
    pub(super) const FAULTS: [&str; 8] = [
        "no control messages of this cluster",
        "sealed with another key",
        "forged or damaged",
        "not understood",
        "old",
        "not known to be new",
        "of another version",
        "of an impossible term",
    ];
}

impl Envelope {
    /// The datagram with this message, sealed with the current key.
    pub fn seal(&self, cluster: ClusterId, keys: &Keys) -> Vec<u8> {
        let mut out = Vec::with_capacity(DATAGRAM);
        out.extend(MAGIC);
        let role = self.sender.role as u8;
        out.extend([self.version, keys.current.id, role, 0]);
        out.extend(cluster.0.to_be_bytes());
        out.extend(self.sender.id.to_be_bytes());
        for number in [self.session, self.sequence, self.echo, self.offer] {
            out.extend(number.to_be_bytes());
        }
        self.message.encode(&mut out);
        let seal = keys.current.mac(&out).finalize().into_bytes();
        out.extend(seal);
        out
    }

    /// Opens the datagram, and returns its message with the envelope's fields.
    ///
    /// # Errors
    /// Fails if the datagram does not belong to this cluster. Until the seal is checked, only the
    /// header is read. The check compares the seals in constant time.
    pub fn open(bytes: &[u8], cluster: ClusterId, keys: &Keys) -> Result<Self, Cause> {
        if bytes.len() < HEADER + SEAL || bytes.len() > DATAGRAM || bytes[..4] != MAGIC {
            return Err(Cause::Foreign);
        }
        if first_eight(&bytes[8..]) != cluster.0 {
            return Err(Cause::Foreign);
        }
        let (sealed, seal) = bytes.split_at(bytes.len() - SEAL);
        keys.check(bytes[5], sealed, seal)?;
        let roles = [Role::Node, Role::Coordinator, Role::Operator];
        let role = roles.into_iter().find(|role| *role as u8 == sealed[6]);
        let role = role.ok_or(Cause::Body)?;
        let id = super::avp::word(&sealed[16..20]);
        let number = |at: usize| first_eight(&sealed[at..]);
        Ok(Self {
            version: sealed[4],
            sender: Peer { role, id },
            session: number(20),
            sequence: number(28),
            echo: number(36),
            offer: number(44),
            message: Message::decode(&sealed[HEADER..]).ok_or(Cause::Body)?,
        })
    }
}

/// HMAC-SHA256 of `bytes`.
pub(crate) fn mac(secret: &[u8], bytes: &[u8]) -> Hmac<Sha256> {
    // HMAC accepts keys of any length (RFC 2104, section 2), so this never fails.
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(secret).expect("a key of any length");
    mac.update(bytes);
    mac
}

/// The first eight bytes as a number. `bytes` must have at least eight.
pub(crate) fn first_eight(bytes: &[u8]) -> u64 {
    bytes[..8]
        .iter()
        .fold(0, |number, byte| (number << 8) | u64::from(*byte))
}
