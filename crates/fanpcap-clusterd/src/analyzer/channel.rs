//! A connection that a node has made: plain, or by TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A connection that a node has made.
pub(super) enum Channel {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Channel {
    /// Shakes hands if there is TLS. The stream has time limits for that.
    ///
    /// # Errors
    ///
    /// One side does not believe the other, or the connection broke.
    pub(super) fn open(mut stream: TcpStream, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let Some(config) = tls else {
            return Ok(Self::Plain(stream));
        };
        let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
        while session.is_handshaking() {
            if let Err(error) = session.complete_io(&mut stream) {
                end(&mut stream);
                return Err(error);
            }
        }
        while session.wants_write() {
            session.write_tls(&mut stream)?;
        }
        Ok(Self::Tls(Box::new(StreamOwned::new(session, stream))))
    }

    /// Whether both sides have shown certificates.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// The connection below.
    pub(super) fn stream(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref(),
        }
    }
}

/// How long the other side may take to read why it is refused.
const PATIENCE: Duration = Duration::from_millis(500);

/// Ends a connection so that the other side can read why: the kernel throws away what was sent
/// when a socket is closed with bytes that nobody has read.
fn end(stream: &mut TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let until = Instant::now() + PATIENCE;
    let mut bytes = [0; 4096];
    while stream.set_read_timeout(Some(PATIENCE)).is_ok() && Instant::now() < until {
        if !matches!(stream.read(&mut bytes), Ok(1..)) {
            break;
        }
    }
}

impl Read for Channel {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(to),
            Self::Tls(stream) => stream.read(to),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
