//! One TCP connection to an analyzer. With TLS, both sides authenticate.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fanpcap_cluster::record::{ACK_BYTES, decode_ack};

use fanpcap_linux::unacknowledged;

use super::secured::Secured;
use crate::keyring::Keyring;
use crate::tls;

/// How long connecting may take, and how long an answer of the analyzer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long this side waits for the analyzer's reason after the analyzer has ended the connection.
const REASON: Duration = Duration::from_millis(200);

/// Why there is no connection to the analyzer, in words for the operator.
#[derive(Debug)]
pub(super) struct ConnectionError(pub(super) String);

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "the kernel's own text is enough for other errors"
)]
impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        if let Some(why) = tls::words(&error) {
            return Self(format!("TLS with the analyzer: {why}"));
        }
        if has_closed(error.kind()) {
            return Self(CLOSED.to_owned());
        }
        let check = match error.kind() {
            io::ErrorKind::ConnectionRefused => {
                ": is the analyzer running, and is this its address in 'analyzers' of cluster.conf?"
            }
            io::ErrorKind::TimedOut
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable => {
                ": is the analyzer's machine up, and do routes and firewalls let TCP pass?"
            }
            _ => "",
        };
        Self(format!("no connection: {error}{check}"))
    }
}

/// Whether a connection failed because the other side has ended it.
fn has_closed(kind: io::ErrorKind) -> bool {
    let closed = [
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::BrokenPipe,
    ];
    closed.contains(&kind)
}

/// The connection is open, but the analyzer acknowledges nothing.
pub(super) const SILENT: &str = "the analyzer acknowledges nothing; it may hang, or its disk may \
    be too slow: see its status";

/// The analyzer has closed the connection and has not given a reason.
pub(super) const CLOSED: &str = "the analyzer closed the connection; if it does so again, compare 'key_file' \
    and 'records_certificate' in cluster.conf, and fanpcap's version, on both sides";

/// A connection, and the number of the first batch that the analyzer lacks.
pub(super) struct Connection {
    stream: TcpStream,
    /// `None` if this side has neither a key nor a certificate.
    secured: Option<Secured>,
    lacks: Arc<AtomicU64>,
    acks: thread::JoinHandle<Result<(), ConnectionError>>,
}

impl Connection {
    /// Connects. Both sides authenticate if this side has a key or a certificate.
    pub(super) fn open(analyzer: SocketAddr, keyring: &Keyring) -> Result<Self, ConnectionError> {
        let stream = TcpStream::connect_timeout(&analyzer, PATIENCE)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // Analyzers do not acknowledge counts, so only TCP shows whether counts reach the machine.
        unacknowledged::limit(stream.as_fd(), PATIENCE)?;
        let tls = keyring.tls();
        let secured = tls.map(|tls| Secured::open(&stream, analyzer.ip(), Arc::clone(&tls.client)));
        let secured = secured.transpose()?;
        stream.set_read_timeout(None)?;
        let lacks = Arc::new(AtomicU64::new(0));
        let heard = Arc::clone(&lacks);
        let end = stream.try_clone()?;
        let reader: Box<dyn Read + Send> = match &secured {
            None => Box::new(stream.try_clone()?),
            Some(secured) => Box::new(secured.reader()?),
        };
        let listen = move || {
            let ended = take_acks(reader, &heard);
            let _ = end.shutdown(Shutdown::Both);
            ended
        };
        let acks = thread::Builder::new()
            .name("acks".to_owned())
            .spawn(listen)?;
        Ok(Self {
            stream,
            secured,
            lacks,
            acks,
        })
    }

    pub(super) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        match &mut self.secured {
            None => self.stream.write_all(message),
            Some(secured) => secured.send(message),
        }
    }

    /// The number of the first batch that the analyzer lacks.
    pub(super) fn lacks(&self) -> u64 {
        self.lacks.load(Ordering::Acquire)
    }

    /// Closes the connection. Returns the number of the first batch that the analyzer lacks, and
    /// the reason if the analyzer had ended the connection. Waits a moment for this reason.
    pub(super) fn close(self) -> (u64, Option<ConnectionError>) {
        let until = Instant::now() + REASON;
        while !self.is_over() && Instant::now() < until {
            thread::sleep(REASON / 20);
        }
        let is_over = self.is_over();
        let Self {
            stream,
            acks,
            lacks,
            mut secured,
        } = self;
        if let Some(secured) = &mut secured {
            secured.close();
        }
        let _ = stream.shutdown(Shutdown::Both);
        let ended = acks.join().ok().and_then(Result::err);
        (lacks.load(Ordering::Acquire), ended.filter(|_| is_over))
    }

    /// Whether the analyzer has ended the connection.
    pub(super) fn is_over(&self) -> bool {
        self.acks.is_finished()
    }
}

fn take_acks(mut stream: impl Read, lacks: &AtomicU64) -> Result<(), ConnectionError> {
    let mut ack = [0; ACK_BYTES];
    loop {
        stream.read_exact(&mut ack)?;
        let ack = decode_ack(&ack);
        let (_, next) =
            ack.map_err(|error| ConnectionError(format!("the analyzer's answer is {error}")))?;
        lacks.fetch_max(next, Ordering::AcqRel);
    }
}
