//! One TCP connection to an analyzer, and what proves both sides to each other.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_cluster::record::{ACK_BYTES, Head, decode_ack};
use fanpcap_cluster::sealed::{Heard, Pass, Refusal, SEAL_BYTES};

use super::secured::Secured;
use crate::keyring::{Keyring, random};
use crate::tls;

/// How long a connection may take to be made, and to be answered.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long the reason of a connection's end may be on its way.
const REASON: Duration = Duration::from_millis(200);

/// Why there is no connection, for the operator.
#[derive(Debug)]
pub(super) struct LinkError(pub(super) String);

impl From<Refusal> for LinkError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.to_string())
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        if let Some(why) = tls::words(&error) {
            return Self(format!("TLS with the analyzer: {why}"));
        }
        let closed = [
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
        ];
        Self(match closed.contains(&error.kind()) {
            true => CLOSED.to_owned(),
            false => format!("no connection: {error}"),
        })
    }
}

const CLOSED: &str = "the analyzer closed the connection; if it does so again, compare 'key_file' \
    in cluster.conf on both sides";

/// A connection, and the first batch that the analyzer lacks.
pub(super) struct Link {
    stream: TcpStream,
    guard: Guard,
    /// A batch with its seal.
    sealed: Vec<u8>,
    lacks: Arc<AtomicU64>,
    acks: thread::JoinHandle<Result<(), LinkError>>,
}

/// What makes a connection trustworthy.
enum Guard {
    /// Nothing: this side has neither key nor certificate.
    Open,
    Seals(Seals),
    Tls(Secured),
}

/// How the messages of a connection are sealed.
#[derive(Clone)]
struct Seals {
    head: Head,
    keyring: Arc<Keyring>,
    pass: Arc<Mutex<Pass>>,
}

impl Link {
    /// Connects, and gets the analyzer's token if this side has a key.
    pub(super) fn open(
        analyzer: SocketAddr,
        head: Head,
        keyring: &Arc<Keyring>,
    ) -> Result<Self, LinkError> {
        let mut stream = TcpStream::connect_timeout(&analyzer, PATIENCE)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let guard = match (keyring.tls(), keyring.has_keys()) {
            (Some(tls), _) => Guard::Tls(Secured::open(&stream, analyzer.ip(), tls.client)?),
            (None, true) => Guard::Seals(Seals::open(&mut stream, head, Arc::clone(keyring))?),
            (None, false) => Guard::Open,
        };
        stream.set_read_timeout(None)?;
        let lacks = Arc::new(AtomicU64::new(0));
        let heard = Arc::clone(&lacks);
        let end = stream.try_clone()?;
        let (reader, seals): (Box<dyn Read + Send>, _) = match &guard {
            Guard::Open => (Box::new(stream.try_clone()?), None),
            Guard::Seals(seals) => (Box::new(stream.try_clone()?), Some(seals.clone())),
            Guard::Tls(secured) => (Box::new(secured.reader()?), None),
        };
        let listen = move || {
            let ended = take_acks(reader, seals.as_ref(), &heard);
            let _ = end.shutdown(Shutdown::Both);
            ended
        };
        let acks = thread::Builder::new()
            .name("acks".to_owned())
            .spawn(listen)?;
        Ok(Self {
            stream,
            guard,
            sealed: Vec::new(),
            lacks,
            acks,
        })
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match &mut self.guard {
            Guard::Open => self.stream.write_all(message),
            Guard::Tls(secured) => secured.send(message),
            Guard::Seals(seals) => {
                self.sealed.clear();
                self.sealed.extend_from_slice(message);
                seals.seal(&mut self.sealed);
                self.stream.write_all(&self.sealed)
            }
        }
    }

    /// The first batch that the analyzer lacks.
    pub(super) fn lacks(&self) -> u64 {
        self.lacks.load(Ordering::Acquire)
    }

    /// Ends it. Returns the first batch that the analyzer lacks, and why it had ended before, if it
    /// had. What cannot be written any more may have a reason that is still on its way.
    pub(super) fn close(self) -> (u64, Option<LinkError>) {
        let until = Instant::now() + REASON;
        while !self.is_over() && Instant::now() < until {
            thread::sleep(REASON / 20);
        }
        let is_over = self.is_over();
        let Self {
            stream,
            acks,
            lacks,
            mut guard,
            ..
        } = self;
        if let Guard::Tls(secured) = &mut guard {
            secured.close();
        }
        let _ = stream.shutdown(Shutdown::Both);
        let ended = acks.join().ok().and_then(Result::err);
        (lacks.load(Ordering::Acquire), ended.filter(|_| is_over))
    }

    /// Whether the analyzer has ended it.
    pub(super) fn is_over(&self) -> bool {
        self.acks.is_finished()
    }
}

impl Seals {
    /// Asks for the token and waits for it.
    fn open(stream: &mut TcpStream, head: Head, keyring: Arc<Keyring>) -> Result<Self, LinkError> {
        let mut pass = Pass::default();
        let nonce = u64::from_ne_bytes(random()?);
        let hello = keyring.with(|keys| keys.map(|keys| pass.ask(keys, &head, nonce)));
        stream.write_all(&hello.unwrap_or_default())?;
        let mut welcome = [0; ACK_BYTES + SEAL_BYTES];
        stream.read_exact(&mut welcome)?;
        let seals = Self {
            head,
            keyring,
            pass: Arc::new(Mutex::new(pass)),
        };
        match seals.hear(&welcome)? {
            Heard::Welcome => Ok(seals),
            Heard::Ask | Heard::Ack(_) => Err(Refusal::Stale.into()),
        }
    }

    fn seal(&self, message: &mut Vec<u8>) {
        let mut pass = self.pass.lock().unwrap_or_else(PoisonError::into_inner);
        self.keyring.with(|keys| {
            // Without a key the analyzer refuses the message, and the connection is made anew.
            if let Some(keys) = keys {
                pass.seal(keys, message);
            }
        });
    }

    fn hear(&self, bytes: &[u8]) -> Result<Heard, Refusal> {
        let mut pass = self.pass.lock().unwrap_or_else(PoisonError::into_inner);
        self.keyring.with(|keys| match keys {
            Some(keys) => pass.hear(keys, &self.head, bytes),
            None => Err(Refusal::Key),
        })
    }
}

/// Reads acknowledgements until the connection ends.
fn take_acks(
    mut stream: impl Read,
    seals: Option<&Seals>,
    lacks: &AtomicU64,
) -> Result<(), LinkError> {
    let mut ack = [0; ACK_BYTES + SEAL_BYTES];
    loop {
        let next = match seals {
            Some(seals) => {
                stream.read_exact(&mut ack)?;
                match seals.hear(&ack)? {
                    Heard::Ack(next) => next,
                    Heard::Ask | Heard::Welcome => continue,
                }
            }
            None => {
                stream.read_exact(&mut ack[..ACK_BYTES])?;
                let ack = decode_ack(&ack[..ACK_BYTES]);
                ack.map_err(|_| Refusal::Foreign)?.1
            }
        };
        lacks.fetch_max(next, Ordering::AcqRel);
    }
}
