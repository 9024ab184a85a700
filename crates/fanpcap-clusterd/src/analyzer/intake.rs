//! Takes messages from the network: datagrams, and connections that are acknowledged.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_cluster::record::{HEAD_BYTES, Head, Kind, MESSAGE_BYTES, encode_ack};
use fanpcap_cluster::sealed::{Entry, Gate, Refusal, SEAL_BYTES};
use fanpcap_linux::receive_buffer;
use fanpcap_terminal::server::not_listening;
use fanpcap_terminal::streams;

use super::channel::Channel;
use super::places::{Place, Places};
use crate::keyring::{Keyring, random};
use crate::tls;

/// Messages that may wait for the analyzer.
const QUEUE: usize = 1024;

/// Bytes of datagrams that the kernel keeps: a node's report, once a second, is 120 KiB as the
/// kernel counts, and all nodes may report at once.
const BUFFER: u32 = 16 << 20;

/// How long a connection waits for bytes before it looks for what is to be acknowledged.
const LOOK: Duration = Duration::from_millis(10);

/// A connection is closed that has not brought a message that is believed after so long, however
/// slowly it goes on.
const PROOF: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });

/// A connection that begins a message and does not end it is closed after so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection that sends nothing for this long is closed: its node may be gone. A living node
/// says ten times a second that it has nothing to send, and connects again.
const IDLE: Duration = Duration::from_secs(60);

/// A message, and the place for the number of the first batch that the analyzer lacks.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    pub(super) lacks: Option<Arc<AtomicU64>>,
}

/// What the intake has refused or dropped.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    /// Datagrams that found the queue full.
    pub(super) datagrams: AtomicU64,
    /// Connections that sent garbage or nothing, or that were too many.
    pub(super) connections: AtomicU64,
    /// Messages that were refused, by [`Refusal`].
    refused: [AtomicU64; Refusal::ALL.len()],
    /// Connections with a refused certificate, or without one.
    uncertified: AtomicU64,
}

impl Dropped {
    /// All refused messages, except those of nodes that had no token yet.
    pub(super) fn unbelieved(&self) -> u64 {
        let stale = self.refused[Refusal::Stale as usize].load(Ordering::Relaxed);
        let all: u64 = self.refused().iter().map(|(_, count)| count).sum();
        all.saturating_sub(stale)
    }

    /// What was not believed, by the names of the reasons.
    pub(super) fn refused(&self) -> Vec<(&'static str, u64)> {
        let count = |refusal: Refusal| {
            let count = &self.refused[refusal as usize];
            (refusal.name(), count.load(Ordering::Relaxed))
        };
        let uncertified = self.uncertified.load(Ordering::Relaxed);
        let all = Refusal::ALL.into_iter().map(count);
        all.chain([("certificate", uncertified)]).collect()
    }

    /// Counts a message that is not believed. Says so, the more seldom the more there are.
    fn refuse(&self, refusal: Refusal, from: SocketAddr) {
        let count = self.refused[refusal as usize].fetch_add(1, Ordering::Relaxed) + 1;
        // Stale: a node that was not welcomed yet, or went on while the analyzer was restarted.
        if refusal != Refusal::Stale {
            say(count, from, &refusal.to_string());
        }
    }

    /// Counts a connection without a certificate that is believed.
    fn refuse_certificate(&self, why: &str, from: SocketAddr) {
        let count = self.uncertified.fetch_add(1, Ordering::Relaxed) + 1;
        say(count, from, &format!("TLS with the node: {why}"));
    }
}

/// Says the first, second, fourth, eighth refusal and so on.
fn say(count: u64, from: SocketAddr, why: &str) {
    if count.is_power_of_two() {
        streams::note(&format!(
            "fanpcap analyzer: refused from {from}, {count} so far: {why}\n"
        ));
    }
}

/// What all threads of an intake have.
#[derive(Clone, Debug)]
struct Post {
    cluster: u64,
    keyring: Arc<Keyring>,
    to: SyncSender<Message>,
    dropped: Arc<Dropped>,
}

impl Post {
    fn gate(&self) -> io::Result<Gate> {
        Ok(Gate::new(self.cluster, random()?))
    }
}

/// Listens on an address, with UDP and TCP, for messages of a cluster. With a key on the ring, it
/// accepts only sealed messages.
///
/// # Errors
///
/// The address can't be listened on.
pub(super) fn open(
    on: SocketAddr,
    cluster: u64,
    keyring: &Arc<Keyring>,
) -> Result<(Receiver<Message>, Arc<Dropped>)> {
    let socket = UdpSocket::bind(on).map_err(|error| not_listening(on, &error))?;
    // Without the right to, it is what users are allowed.
    let _ = receive_buffer::force(socket.as_fd(), BUFFER);
    let listener = TcpListener::bind(on).map_err(|error| not_listening(on, &error))?;
    let (to, queue) = sync_channel(QUEUE);
    let dropped = Arc::new(Dropped::default());
    let post = Post {
        cluster,
        keyring: Arc::clone(keyring),
        to,
        dropped: Arc::clone(&dropped),
    };
    let (of_datagrams, gate) = (post.clone(), post.gate().context("reading /dev/urandom")?);
    start("datagrams", move || {
        take_datagrams(&socket, gate, &of_datagrams)
    })?;
    start("connections", move || accept(&listener, &post))?;
    Ok((queue, dropped))
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(|_| ())
}

fn take_datagrams(socket: &UdpSocket, mut gate: Gate, post: &Post) {
    let mut buffer = vec![0; MESSAGE_BYTES + SEAL_BYTES];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else {
            thread::sleep(LOOK);
            continue;
        };
        let opened = post.keyring.with(|keys| gate.open(keys, &buffer[..length]));
        let bytes = match opened {
            Ok(Entry::Message(message)) => message.to_vec(),
            Ok(Entry::Answer(answer)) => {
                let _ = socket.send_to(&answer, from);
                continue;
            }
            Ok(Entry::Stale(answer)) => {
                post.dropped.refuse(Refusal::Stale, from);
                let _ = socket.send_to(&answer, from);
                continue;
            }
            Err(refusal) => {
                post.dropped.refuse(refusal, from);
                continue;
            }
        };
        match post.to.try_send(Message { bytes, lacks: None }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                post.dropped.datagrams.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => return,
        }
    }
}

fn accept(listener: &TcpListener, post: &Post) {
    let places = Places::default();
    let dropped = &post.dropped;
    loop {
        let Ok((stream, from)) = listener.accept() else {
            // Out of descriptors, say.
            thread::sleep(LOOK);
            continue;
        };
        let Some(place) = places.take(from.ip()) else {
            dropped.connections.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let post = post.clone();
        let begun = start("connection", move || {
            if let Err(ended) = serve(stream, place, &post) {
                match ended {
                    Ended::Refused(refusal) => post.dropped.refuse(refusal, from),
                    Ended::Tls(why) => post.dropped.refuse_certificate(&why, from),
                    Ended::Broken => {
                        post.dropped.connections.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        if begun.is_err() {
            dropped.connections.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Why a connection was ended here.
#[derive(Debug)]
enum Ended {
    /// It broke, or sent something else.
    Broken,
    /// What it sent is not believed.
    Refused(Refusal),
    /// One side does not believe the other's certificate, or there is none.
    Tls(String),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        tls::words(&error).map_or(Self::Broken, Self::Tls)
    }
}

impl From<Refusal> for Ended {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Takes a connection's messages until it ends.
fn serve(stream: TcpStream, mut place: Place, post: &Post) -> Result<(), Ended> {
    let proof = Instant::now() + PROOF;
    let tls = post.keyring.tls().map(|tls| tls.server);
    let mut stream = Channel::open(stream, tls, proof)?;
    stream.stream().set_read_timeout(Some(LOOK))?;
    stream.stream().set_write_timeout(Some(PATIENCE))?;
    let mut acks = Acks::new(post)?;
    loop {
        let until = place.is_strangers().then_some(proof);
        let mut bytes = vec![0; HEAD_BYTES];
        if !fill(&mut stream, &mut bytes, Some(&mut acks), until)? {
            return Ok(());
        }
        let head = Head::decode(&bytes).map_err(Refusal::of_head)?;
        if !stream.is_tls() {
            acks.check(head.kind)?;
        } else if head.cluster != post.cluster {
            return Err(Refusal::Foreign.into());
        }
        let seal = if acks.is_sealed { SEAL_BYTES } else { 0 };
        bytes.resize(head.length + seal, 0);
        let rest = &mut bytes[HEAD_BYTES..];
        if !rest.is_empty() && !fill(&mut stream, rest, None, until)? {
            return Err(Ended::Broken);
        }
        let opened = match stream.is_tls() {
            true => Entry::Message(&bytes[..]),
            false => post.keyring.with(|keys| acks.gate.open(keys, &bytes))?,
        };
        match opened {
            Entry::Message(message) => {
                let length = message.len();
                bytes.truncate(length);
                place.prove();
            }
            Entry::Answer(answer) => {
                stream.write_all(&answer)?;
                continue;
            }
            Entry::Stale(_) => return Err(Refusal::Stale.into()),
        }
        if head.kind == Kind::Records {
            acks.head = Some(head);
        }
        let lacks = Some(Arc::clone(&acks.lacks));
        if post.to.send(Message { bytes, lacks }).is_err() {
            return Ok(());
        }
        acks.tell(&mut stream)?;
    }
}

/// The acknowledgements that a connection's sender has got.
#[derive(Debug)]
struct Acks {
    keyring: Arc<Keyring>,
    gate: Gate,
    /// Whether messages have seals: both sides had a key when the connection began.
    is_sealed: bool,
    lacks: Arc<AtomicU64>,
    told: u64,
    head: Option<Head>,
}

impl Acks {
    fn new(post: &Post) -> io::Result<Self> {
        Ok(Self {
            keyring: Arc::clone(&post.keyring),
            gate: post.gate()?,
            is_sealed: false,
            lacks: Arc::default(),
            told: 0,
            head: None,
        })
    }

    /// Looks at the kind of a message before the rest of it is read: a connection is sealed from
    /// its first message on, or not at all.
    fn check(&mut self, kind: Kind) -> Result<(), Refusal> {
        match (self.is_sealed, kind, self.keyring.has_keys()) {
            (_, Kind::Hello, true) => self.is_sealed = true,
            (_, Kind::Hello, false) => return Err(Refusal::Key),
            (false, _, true) => return Err(Refusal::Unsealed),
            _ => {}
        }
        Ok(())
    }

    fn tell(&mut self, stream: &mut Channel) -> io::Result<()> {
        let lacks = self.lacks.load(Ordering::Acquire);
        let Some(head) = self.head.filter(|_| lacks > self.told) else {
            return Ok(());
        };
        self.told = lacks;
        let mut ack = encode_ack(&head, lacks);
        let gate = &mut self.gate;
        self.keyring.with(|keys| {
            if let Some(keys) = keys.filter(|_| self.is_sealed) {
                gate.seal(keys, &mut ack);
            }
        });
        stream.write_all(&ack)
    }
}

/// Fills a buffer from a connection, `until` a time if one is given. Returns whether there was
/// anything. Until the first byte comes, it waits for at most [`IDLE`] and sends acknowledgements.
fn fill(
    stream: &mut Channel,
    buffer: &mut [u8],
    mut acks: Option<&mut Acks>,
    until: Option<Instant>,
) -> io::Result<bool> {
    let mut there = 0;
    let mut begun = Instant::now();
    while there < buffer.len() {
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(ErrorKind::TimedOut.into());
        }
        match stream.read(&mut buffer[there..]) {
            Ok(0) if there == 0 => return Ok(false),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => {
                begun = if there == 0 { Instant::now() } else { begun };
                there += more;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // TLS that ends without saying so, as with a node that was killed.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof && there == 0 => {
                return Ok(false);
            }
            Err(error) => {
                let is_early = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                match acks.as_deref_mut().filter(|_| there == 0) {
                    Some(_) if is_early && begun.elapsed() >= IDLE => return Ok(false),
                    Some(acks) if is_early => acks.tell(stream)?,
                    _ if is_early && begun.elapsed() < PATIENCE => {}
                    _ => return Err(error),
                }
            }
        }
    }
    Ok(there > 0)
}
