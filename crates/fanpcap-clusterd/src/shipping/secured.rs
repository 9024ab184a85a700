//! The node's end of a TLS connection: one thread writes, another thread reads.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

/// Bytes that are read at once.
const READ: usize = 4096;

/// The writing end of the connection.
pub(super) struct Secured {
    stream: TcpStream,
    session: Arc<Mutex<ClientConnection>>,
    /// Bytes that are encrypted and not sent yet.
    out: Vec<u8>,
}

/// The reading end of the connection.
pub(super) struct Reader {
    stream: TcpStream,
    session: Arc<Mutex<ClientConnection>>,
}

impl Secured {
    /// Performs the TLS handshake with the server at this address, within `stream`'s time limits.
    pub(super) fn open(
        stream: &TcpStream,
        server: IpAddr,
        config: Arc<ClientConfig>,
    ) -> io::Result<Self> {
        let name = ServerName::IpAddress(server.into());
        let mut session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        session.set_buffer_limit(None);
        let mut stream = stream.try_clone()?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        while session.wants_write() {
            session.write_tls(&mut stream)?;
        }
        Ok(Self {
            stream,
            session: Arc::new(Mutex::new(session)),
            out: Vec::new(),
        })
    }

    pub(super) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.out.clear();
        {
            let mut session = lock(&self.session);
            session.writer().write_all(message)?;
            while session.wants_write() {
                session.write_tls(&mut self.out)?;
            }
        }
        self.stream.write_all(&self.out)
    }

    /// Sends TLS's `close_notify`, so that the other side expects no more data.
    pub(super) fn close(&mut self) {
        lock(&self.session).send_close_notify();
        // The connection ends here, so the error of a broken connection is not reported.
        let _ = self.send(&[]);
    }

    pub(super) fn reader(&self) -> io::Result<Reader> {
        Ok(Reader {
            stream: self.stream.try_clone()?,
            session: Arc::clone(&self.session),
        })
    }
}

impl Read for Reader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut bytes = [0; READ];
        loop {
            match lock(&self.session).reader().read(to) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            // Reads without the session's lock, because the writing thread needs the lock.
            let length = self.stream.read(&mut bytes)?;
            let mut rest = &bytes[..length];
            let mut session = lock(&self.session);
            loop {
                session.read_tls(&mut rest)?;
                let taken = session.process_new_packets();
                taken.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                if rest.is_empty() {
                    break;
                }
            }
        }
    }
}

pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
