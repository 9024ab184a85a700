//! Takes messages from connections, and acknowledges them.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fanpcap_cluster::Part;
use fanpcap_cluster::loss_account::Report;
use fanpcap_cluster::record::{CountsDecoder, HEAD_BYTES, Head, Kind, encode_ack};
use fanpcap_linux::backlog;
use fanpcap_terminal::server::not_listening;

use super::channel::{self, Channel};
use super::connection_limits::{ConnectionLimits, ConnectionSlot, NoSlot};
use super::refusal::{Ended, Refused};
use crate::keyring::Keyring;

/// Maximum number of messages that may wait for the analyzer.
const QUEUE: usize = 1024;

/// How long a connection waits for bytes before it checks for acknowledgements to send.
const LOOK: Duration = Duration::from_millis(10);

/// Limit for the other side to prove that it is a node. Bytes that come do not extend this limit.
const PROOF: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });

/// A connection is closed if a message takes longer than this from its first byte to its last.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection is closed if the other side sends nothing for this long, because the node may be
/// gone. A live node sends its counts every second, and makes a new connection if this one was
/// closed.
const IDLE: Duration = Duration::from_secs(60);

/// Maximum number of connections that may wait to be accepted. The kernel drops further
/// connections, and their senders try again after a second.
const BACKLOG: i32 = 4096;

#[derive(Debug)]
pub(super) enum Content {
    /// What a node has counted for a part of the buckets.
    Counts(Part, Box<Report>),
    /// The bytes of a batch, or of a message that can't be decoded.
    Records(Vec<u8>),
}

/// A message from a node. `lacks` holds the number of the first batch that the analyzer lacks. The
/// connection's thread acknowledges all batches with lower numbers.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) content: Content,
    pub(super) from: IpAddr,
    pub(super) lacks: Arc<AtomicU64>,
}

#[derive(Clone, Debug)]
struct IntakeShared {
    cluster: u64,
    keyring: Arc<Keyring>,
    to: SyncSender<Message>,
    refused: Arc<Refused>,
}

/// Listens for messages of a cluster. If the keyring has a key or a certificate, accepts only TLS.
pub(super) fn open(
    on: SocketAddr,
    cluster: u64,
    keyring: &Arc<Keyring>,
) -> Result<(Receiver<Message>, Arc<Refused>)> {
    let listener = TcpListener::bind(on).map_err(|error| not_listening(on, &error))?;
    backlog::set(listener.as_fd(), BACKLOG).context("listening")?;
    let (to, queue) = sync_channel(QUEUE);
    let refused = Arc::new(Refused::default());
    let intake = IntakeShared {
        cluster,
        keyring: Arc::clone(keyring),
        to,
        refused: Arc::clone(&refused),
    };
    start("connections", move || accept(&listener, &intake))?;
    Ok((queue, refused))
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(|_| ())
}

fn accept(listener: &TcpListener, intake: &IntakeShared) {
    let connection_limits = ConnectionLimits::default();
    loop {
        let accepted = listener.accept();
        // This handle ends the connection when its slot is given to another connection.
        let own = |(stream, from): (TcpStream, _)| Ok((stream.try_clone()?, stream, from));
        let Ok((end, stream, from)) = accepted.and_then(own) else {
            // Accepting fails, for example, if the process has no free descriptors.
            thread::sleep(LOOK);
            continue;
        };
        let (slot, displaced) = connection_limits.take(from, move || {
            let _ = end.shutdown(Shutdown::Both);
        });
        if let Some(other) = displaced {
            intake.refused.count(&Ended::unproven(), other);
        }
        let of_thread = intake.clone();
        let begun = start("connection", move || {
            let mut slot = slot;
            let served = serve(stream, &mut slot, &of_thread);
            // A displaced connection was already counted when the newer connection took its slot.
            if let Some(ended) = served.err().filter(|_| !slot.is_displaced()) {
                of_thread.refused.count(&ended, from);
            }
        });
        if begun.is_err() {
            intake.refused.count(&Ended::Broken, from);
        }
    }
}

/// Takes a connection's messages until it ends.
fn serve(stream: TcpStream, slot: &mut ConnectionSlot, intake: &IntakeShared) -> Result<(), Ended> {
    let proof = Instant::now() + PROOF;
    let from = slot.from;
    let tls = intake.keyring.tls();
    let failed = |error: io::Error| Ended::of(&error, tls.as_deref());
    let server = tls.as_ref().map(|tls| Arc::clone(&tls.server));
    let opened = channel::open(stream, server, proof, [LOOK, PATIENCE]);
    let mut stream = opened.map_err(failed)?;
    if tls.is_some() {
        prove(slot, &intake.refused)?;
    }
    let mut acks = Acks::default();
    let mut counts = CountsDecoder::default();
    loop {
        let until = (!slot.is_proven).then_some(proof);
        let mut bytes = vec![0; HEAD_BYTES];
        if !fill(&mut *stream, &mut bytes, Some(&mut acks), until).map_err(failed)? {
            return Ok(());
        }
        let head = Head::decode(&bytes).map_err(|error| Ended::of_head(error, &bytes))?;
        if head.cluster != intake.cluster {
            return Err(Ended::foreign());
        }
        bytes.resize(head.length, 0);
        let rest = &mut bytes[HEAD_BYTES..];
        if !rest.is_empty() && !fill(&mut *stream, rest, None, until).map_err(failed)? {
            return Err(Ended::Broken);
        }
        // The key or certificate was replaced, so nodes must connect again with the new one.
        if tls.as_ref().map(Arc::as_ptr) != intake.keyring.tls().as_ref().map(Arc::as_ptr) {
            return Ok(());
        }
        prove(slot, &intake.refused)?;
        let content = match head.kind {
            Kind::Counts => {
                let (part, report) = counts.decode(&bytes).map_err(Ended::unreadable)?;
                Content::Counts(part, Box::new(report))
            }
            Kind::Records => {
                acks.head = Some(head);
                Content::Records(bytes)
            }
            Kind::Ack => Content::Records(bytes),
        };
        let message = Message {
            content,
            from,
            lacks: Arc::clone(&acks.lacks),
        };
        if intake.to.send(message).is_err() {
            return Ok(());
        }
        acks.tell(&mut *stream).map_err(failed)?;
    }
}

/// Notes that the connection is a node's connection. With TLS, the other side has shown a valid key
/// or certificate. Without TLS, the other side has sent a message of the cluster.
fn prove(slot: &mut ConnectionSlot, refused: &Refused) -> Result<(), Ended> {
    let displaced = slot.prove().map_err(|why| match why {
        NoSlot::Displaced => Ended::Broken,
        NoSlot::Full => Ended::full(),
    })?;
    if let Some(other) = displaced {
        refused.count(&Ended::full(), other);
    }
    Ok(())
}

/// The acknowledgements that were sent over a connection.
#[derive(Debug, Default)]
struct Acks {
    lacks: Arc<AtomicU64>,
    acknowledged: u64,
    head: Option<Head>,
}

impl Acks {
    fn tell(&mut self, stream: &mut dyn Channel) -> io::Result<()> {
        let lacks = self.lacks.load(Ordering::Acquire);
        let Some(head) = self.head.filter(|_| lacks > self.acknowledged) else {
            return Ok(());
        };
        self.acknowledged = lacks;
        stream.write_all(&encode_ack(&head, lacks))
    }
}

/// Fills a buffer from a connection, or fails at the time `until`. Returns whether any bytes came.
/// Until the first byte comes, waits for at most [`IDLE`] and sends acknowledgements.
fn fill(
    stream: &mut dyn Channel,
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
            // The TLS connection ends without a closing message: perhaps the node was killed.
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
