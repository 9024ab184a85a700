//! A participant of the control protocol: seals its messages, and accepts only new ones.
//!
//! A sender numbers its messages within its **session**, which is a random number that the process
//! makes when it starts. The receiver refuses replays as long as it remembers the session. Replays
//! must also fail if the receiver or its peer has just started. So each participant gives its peers
//! a **token**, an unguessable number, and accepts only messages with this token. It answers other
//! messages by a challenge, which has the token. So refusing replays needs neither a clock nor a
//! file.

use std::collections::BTreeMap;
use std::time::Duration;

use hmac::Mac;

use super::body::{Body, Leader};
use super::envelope::{Cause, ClusterId, Envelope, Keys, Peer, Role, VERSION, first_eight, mac};
use super::fields::BodyError;
use super::message::{Kind, Message};
use super::parts::{Assembly, divide};
use super::term::Term;
use super::window::Window;
use crate::identity::Revision;

/// The maximum number of peers that an endpoint remembers. A new peer replaces the peer that has
/// been silent for the longest time. The replaced peer is challenged when it sends again.
const PEERS: usize = 512;

/// The minimum time between two answers to challenges of a peer. Without this limit, two processes
/// with the same role and id could keep a third process busy.
const APART: Duration = Duration::from_millis(100);

/// An operator's command that takes longer than this is challenged again. Otherwise an attacker
/// could delay a change, and let it undo a newer change much later.
const COMMAND: Duration = Duration::from_secs(10);

/// The result of opening a datagram.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Incoming {
    /// A message that this peer has just sent.
    New(Peer, Body),
    /// Nothing to do: the datagram is a part of a message, is our own message, or is outdated.
    Nothing,
    /// The leader that a message names. The message's seal is valid, but the message may be old.
    Hint(Leader),
    /// The peer refused our last message, but will accept the same message if we send it again now.
    Challenged(Peer),
    /// This peer has just sent an unreadable topology of this revision ([`Cause::Body`]).
    Unreadable(Peer, Revision),
    /// Send this datagram to the message's sender. Nothing else is to be done.
    Answer(Vec<u8>),
}

/// What an endpoint knows of a peer.
#[derive(Debug, Default)]
struct Association {
    since: Duration,
    version: u8,
    /// The peer's session; 0 before the first session. The peer's messages must have `token`.
    session: u64,
    token: u64,
    window: Window,
    /// The sequence number of the peer's last message that described the peer's state.
    said: u64,
    /// A number from which we compute the tokens for the peer's next sessions.
    generation: u64,
    /// The session in the peer's last challenge, until a message confirms this session; then 0.
    begun: u64,
    /// The token that the peer gave us. Our messages to the peer must have this token.
    offered: u64,
    /// The sequence number of our last challenged message, and when the peer challenged it.
    challenged: (u64, Option<Duration>),
    assemblies: BTreeMap<Kind, Assembly>,
    used: u64,
}

/// A participant of the control protocol.
#[derive(Debug)]
pub struct Endpoint {
    me: Peer,
    cluster: ClusterId,
    keys: Keys,
    secret: [u8; 32],
    version: u8,
    session: u64,
    sequence: u64,
    generation: u64,
    peers: BTreeMap<Peer, Association>,
    refused: [u64; Cause::FAULTS.len()],
}

impl Endpoint {
    /// The participant `me`. `secret` is a random value that only this process knows.
    pub fn new(me: Peer, cluster: ClusterId, keys: Keys, secret: [u8; 32]) -> Self {
        let session = first_eight(&mac(&secret, b"session").finalize().into_bytes());
        Self {
            me,
            cluster,
            keys,
            secret,
            version: VERSION,
            session,
            sequence: 0,
            generation: 0,
            peers: BTreeMap::new(),
            refused: [0; Cause::FAULTS.len()],
        }
    }

    /// The same endpoint with another version of the protocol. The endpoint also supports the
    /// version before that one.
    #[must_use]
    pub fn with_version(mut self, version: u8) -> Self {
        self.version = version;
        self
    }

    /// This participant.
    pub fn me(&self) -> Peer {
        self.me
    }

    /// The random number with which this process begins to count revisions and states, so that two
    /// processes of one participant count differently. It has 31 bits, so that counts fit into 32
    /// bits.
    pub(super) fn begin(&self) -> u32 {
        u32::try_from(self.session >> 33).unwrap_or(0)
    }

    /// Replaces the keys. From now on, messages that were sealed with any other key are refused.
    pub fn set_keys(&mut self, keys: Keys) {
        self.keys = keys;
    }

    /// The number of datagrams that were refused because of `cause`.
    pub fn refused(&self, cause: Cause) -> u64 {
        self.refused[cause as usize]
    }

    /// The numbers of refused datagrams, each with its cause's number.
    pub(super) fn all_refused(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..).zip(self.refused)
    }

    /// The numbers of refused datagrams with their faults, as text. Empty if none was refused.
    pub(super) fn refusals(&self) -> String {
        let refused = self.refused.iter().zip(Cause::FAULTS);
        let refused = refused.filter(|(count, _)| **count > 0);
        let told = refused.map(|(count, fault)| format!("{count} {fault}"));
        told.collect::<Vec<_>>().join(", ")
    }

    /// Refuses a message with a term that no coordinator can have.
    pub(super) fn check_term(&mut self, incoming: &Incoming, known: Term) -> Result<(), Cause> {
        let term = match incoming {
            Incoming::New(_, body) => body.term(),
            Incoming::Hint(leader) => leader.term,
            Incoming::Unreadable(_, revision) => Term::of(*revision),
            Incoming::Nothing | Incoming::Challenged(_) | Incoming::Answer(_) => return Ok(()),
        };
        if term > known && !term.is_plausible(known) {
            self.refused[Cause::Term as usize] += 1;
            return Err(Cause::Term);
        }
        Ok(())
    }

    /// The datagrams with `body` for the peer `to`. `to` is `None` if the receiver is not known.
    ///
    /// `transfer` is the number of the list in `body`. The receiver joins datagrams with the same
    /// number. It grows with each new list of a type, but not when a list is sent again.
    pub fn seal(&mut self, to: Option<Peer>, body: &Body, transfer: u32) -> Vec<Vec<u8>> {
        let messages = divide(body.kind(), &body.list(), transfer);
        messages
            .into_iter()
            .map(|message| self.seal_message(to, message))
            .collect()
    }

    fn seal_message(&mut self, to: Option<Peer>, message: Message) -> Vec<u8> {
        let known = to.and_then(|peer| Some((peer, self.peers.get(&peer)?)));
        let (version, echo, offer) = match known {
            Some((peer, with)) if with.begun != 0 => (
                with.version,
                with.offered,
                self.token(peer, with.begun, with.generation),
            ),
            Some((_, with)) => (with.version, with.offered, with.token),
            None => (self.version, 0, 0),
        };
        self.seal_with(version, [echo, offer], message)
    }

    fn seal_with(&mut self, version: u8, tokens: [u64; 2], message: Message) -> Vec<u8> {
        self.sequence += 1;
        let envelope = Envelope {
            version,
            sender: self.me,
            session: self.session,
            sequence: self.sequence,
            echo: tokens[0],
            offer: tokens[1],
            message,
        };
        envelope.seal(self.cluster, &self.keys)
    }

    fn token(&self, peer: Peer, session: u64, generation: u64) -> u64 {
        let mut mac = mac(&self.secret, &[peer.role as u8]);
        mac.update(&peer.id.to_be_bytes());
        mac.update(&session.to_be_bytes());
        mac.update(&generation.to_be_bytes());
        first_eight(&mac.finalize().into_bytes())
    }

    /// Takes a datagram.
    ///
    /// # Errors
    /// Fails with the cause if the datagram is refused, and counts the refusal.
    pub fn open(&mut self, now: Duration, datagram: &[u8]) -> Result<Incoming, Cause> {
        let opened = self.try_open(now, datagram);
        match &opened {
            Err(cause) => self.refused[*cause as usize] += 1,
            Ok(Incoming::Answer(_)) => self.refused[Cause::Stale as usize] += 1,
            Ok(Incoming::Unreadable(..)) => self.refused[Cause::Body as usize] += 1,
            Ok(_) => {}
        }
        opened
    }

    fn try_open(&mut self, now: Duration, datagram: &[u8]) -> Result<Incoming, Cause> {
        let envelope = Envelope::open(datagram, self.cluster, &self.keys)?;
        if envelope.sender == self.me && envelope.session == self.session {
            return Ok(Incoming::Nothing);
        }
        if envelope.version > self.version {
            // The challenge has our version. A sender of a later version then adopts this version.
            return Ok(Incoming::Answer(self.challenge(&envelope)));
        }
        if envelope.version + 1 < self.version {
            return Err(Cause::Version);
        }
        self.forget_command(now, envelope.sender);
        self.meet(now, &envelope);
        if self.is_new(&envelope) {
            return self.take(envelope);
        }
        match Body::read(envelope.message.kind, &envelope.message.avps) {
            Ok(Body::Challenge(of)) => self.take_challenge(now, &envelope, of),
            Ok(Body::Announce(leader)) => Ok(Incoming::Hint(leader)),
            _ => Ok(Incoming::Answer(self.challenge(&envelope))),
        }
    }

    /// Forgets the association with an operator's command that began more than [`COMMAND`] ago.
    fn forget_command(&mut self, now: Duration, peer: Peer) {
        let is_old = |with: &Association| now >= with.since.saturating_add(COMMAND);
        if peer.role == Role::Operator && self.peers.get(&peer).is_some_and(is_old) {
            self.peers.remove(&peer);
        }
    }

    /// Makes an association with the sender, if there is none.
    fn meet(&mut self, now: Duration, envelope: &Envelope) {
        self.generation += 1;
        if self.peers.len() >= PEERS && !self.peers.contains_key(&envelope.sender) {
            let oldest = self.peers.iter().min_by_key(|(_, with)| with.used);
            if let Some(oldest) = oldest.map(|(peer, _)| *peer) {
                self.peers.remove(&oldest);
            }
        }
        let fresh = || Association {
            since: now,
            version: self.version,
            generation: self.generation,
            ..Association::default()
        };
        let with = self.peers.entry(envelope.sender).or_insert_with(fresh);
        with.used = self.generation;
        with.version = envelope.version.min(self.version);
    }

    /// Whether the message has the token that we gave the sender for this session. The first
    /// message of a session with the right token invalidates the tokens of all other sessions.
    fn is_new(&mut self, envelope: &Envelope) -> bool {
        let Some(with) = self.peers.get(&envelope.sender) else {
            return false;
        };
        if with.session == envelope.session {
            return with.token != 0 && with.token == envelope.echo;
        }
        let token = self.token(envelope.sender, envelope.session, with.generation);
        if token != envelope.echo {
            return false;
        }
        if let Some(with) = self.peers.get_mut(&envelope.sender) {
            with.session = envelope.session;
            with.token = token;
            with.generation = self.generation;
            with.window = Window::default();
            with.said = 0;
            with.begun = 0;
            with.assemblies.clear();
        }
        true
    }

    fn take(&mut self, envelope: Envelope) -> Result<Incoming, Cause> {
        let peer = envelope.sender;
        let with = self.peers.get_mut(&peer).ok_or(Cause::Stale)?;
        if !with.window.take(envelope.sequence) {
            return Err(Cause::Replay);
        }
        if envelope.offer != 0 {
            with.offered = envelope.offer;
        }
        let kind = envelope.message.kind;
        if kind.is_condition() {
            if envelope.sequence < with.said {
                return Ok(Incoming::Nothing);
            }
            with.said = envelope.sequence;
        }
        let assembly = with.assemblies.entry(kind).or_default();
        let Some(list) = assembly.take(envelope.message) else {
            return Ok(Incoming::Nothing);
        };
        match Body::read(kind, &list) {
            Ok(Body::Challenge(_)) => Ok(Incoming::Nothing),
            Ok(body) => Ok(Incoming::New(peer, body)),
            Err(BodyError::Topology(revision)) => Ok(Incoming::Unreadable(peer, revision)),
            Err(_) => Err(Cause::Body),
        }
    }

    /// Takes a challenge's token, unless the peer has challenged the same or a later message
    /// before.
    fn take_challenge(
        &mut self,
        now: Duration,
        envelope: &Envelope,
        [session, sequence]: [u64; 2],
    ) -> Result<Incoming, Cause> {
        let own = self.session;
        let with = self.peers.get_mut(&envelope.sender).ok_or(Cause::Stale)?;
        let (last, at) = with.challenged;
        if session != own || sequence <= last || sequence > self.sequence {
            return Err(Cause::Replay);
        }
        if at.is_some_and(|at| now < at + APART) {
            return Ok(Incoming::Nothing);
        }
        with.challenged = (sequence, Some(now));
        with.offered = envelope.offer;
        with.begun = match envelope.session == with.session {
            true => 0,
            false => envelope.session,
        };
        Ok(Incoming::Challenged(envelope.sender))
    }

    fn challenge(&mut self, envelope: &Envelope) -> Vec<u8> {
        let peer = envelope.sender;
        let with = self.peers.get(&peer);
        let offer = match with {
            Some(with) if with.session == envelope.session => with.token,
            Some(with) => self.token(peer, envelope.session, with.generation),
            None => 0,
        };
        let body = Body::Challenge([envelope.session, envelope.sequence]);
        let (kind, avps) = (body.kind(), body.list());
        let version = envelope.version.min(self.version);
        self.seal_with(version, [0, offer], Message { kind, avps })
    }
}
