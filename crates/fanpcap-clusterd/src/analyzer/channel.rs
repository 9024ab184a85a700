//! A connection that a node has made: plain, or by TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A connection that a node has made.
pub(super) trait Channel: Read + Write {}

impl<T: Read + Write> Channel for T {}

/// Performs the TLS handshake, if TLS is used. The handshake must end before `until`. From then on,
/// the time limits `read` and `write` apply.
pub(super) fn open(
    mut stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    until: Instant,
    [read, write]: [Duration; 2],
) -> io::Result<Box<dyn Channel>> {
    let limit = |stream: &TcpStream| {
        stream.set_read_timeout(Some(read))?;
        stream.set_write_timeout(Some(write))
    };
    let Some(config) = tls else {
        limit(&stream)?;
        return Ok(Box::new(stream));
    };
    let mut session = ServerConnection::new(config).map_err(io::Error::other)?;
    let mut limited = Limited {
        stream: &mut stream,
        until,
    };
    while session.is_handshaking() {
        if let Err(error) = session.complete_io(&mut limited) {
            while session.wants_write() && session.write_tls(&mut limited).is_ok() {}
            end(&mut stream);
            return Err(error);
        }
    }
    while session.wants_write() {
        session.write_tls(&mut limited)?;
    }
    limit(&stream)?;
    Ok(Box::new(StreamOwned::new(session, stream)))
}

/// A connection that times out at `until`, even if the other side still sends slowly.
struct Limited<'a> {
    stream: &'a mut TcpStream,
    until: Instant,
}

impl Limited<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::ErrorKind::TimedOut.into()),
            false => Ok(Some(left)),
        }
    }
}

impl Read for Limited<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(to)
    }
}

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// How long the other side may take to read the reason of a refusal.
const PATIENCE: Duration = Duration::from_millis(500);

/// Ends a connection so that the other side can read the reason. If a socket is closed with unread
/// bytes, the kernel discards data that was sent.
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
