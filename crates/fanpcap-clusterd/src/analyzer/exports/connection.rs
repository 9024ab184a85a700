//! The connection to a collector, over UDP or TCP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use fanpcap_ipfix::Transport;
use fanpcap_linux::wait;

use super::Target;

/// The time between two attempts to reach a collector that did not listen.
const RETRY: Duration = Duration::from_secs(1);
/// How long a collector may take to accept a connection, or to read.
const PATIENCE: Duration = Duration::from_millis(500);
/// The time between the templates and the first records over UDP: see
/// [`fanpcap_ipfix::Exporter::describe`].
pub(super) const HEAD_START: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct CollectorConnection {
    address: SocketAddr,
    socket: CollectorSocket,
    next_try: Duration,
    /// Messages that the collector did not get.
    pub(super) lost: u64,
}

#[derive(Debug)]
enum CollectorSocket {
    Udp(UdpSocket, UdpState),
    Tcp(Option<TcpStream>),
}

/// Whether a collector that is reached over UDP listens. If no collector listens, the machine at
/// this address refuses each datagram (ICMP), and a later system call fails with `ECONNREFUSED`.
#[derive(Clone, Copy, Debug)]
enum UdpState {
    Reachable,
    Unreachable,
    /// Templates were sent at this time. The collector's machine may still refuse them by ICMP.
    Probed(Duration),
}

pub(super) enum Outcome {
    Unchanged,
    /// There is a new TCP connection, which needs the templates.
    Connected,
    /// It is time to send the templates by [`CollectorConnection::probe`].
    ProbeDue,
    /// The collector has not refused the templates.
    Reachable,
}

impl CollectorConnection {
    /// Opens the socket. Over TCP, [`CollectorConnection::connect`] connects this socket later. It
    /// is no error if the collector does not run yet.
    pub(super) fn open(target: &Target) -> io::Result<Self> {
        let socket = match target.transport {
            Transport::Tcp => CollectorSocket::Tcp(None),
            Transport::Udp => CollectorSocket::Udp(udp(target.address)?, UdpState::Reachable),
        };
        Ok(Self {
            address: target.address,
            socket,
            next_try: Duration::ZERO,
            lost: 0,
        })
    }

    /// Sends a message. Counts the message as lost if that fails.
    pub(super) fn send(&mut self, message: &[u8]) {
        let sent = match &mut self.socket {
            CollectorSocket::Udp(socket, UdpState::Reachable) => socket.send(message),
            CollectorSocket::Tcp(Some(stream)) if !is_closed(stream) => {
                stream.write_all(message).map(|()| message.len())
            }
            CollectorSocket::Udp(..) | CollectorSocket::Tcp(_) => {
                Err(io::ErrorKind::NotConnected.into())
            }
        };
        if let Err(error) = sent {
            self.lost += 1;
            match &mut self.socket {
                CollectorSocket::Udp(..) => self.note_refusal(&error),
                // A part of the message may have been sent, so this connection can't be used again.
                CollectorSocket::Tcp(stream) => *stream = None,
            }
        }
    }

    /// Sends templates over UDP to a collector that did not listen before.
    pub(super) fn probe(&mut self, templates: &[u8], now: Duration) {
        if let CollectorSocket::Udp(socket, state) = &mut self.socket {
            *state = match socket.send(templates) {
                Ok(_) => UdpState::Probed(now),
                Err(_) => UdpState::Unreachable,
            };
        }
    }

    /// Checks whether the collector is gone. A message to a collector that is gone would be lost.
    pub(super) fn check(&mut self) {
        match &mut self.socket {
            CollectorSocket::Udp(socket, UdpState::Reachable) => {
                if let Ok(Some(error)) = socket.take_error() {
                    self.note_refusal(&error);
                }
            }
            CollectorSocket::Tcp(stream @ Some(_)) => {
                if stream.as_ref().is_some_and(is_closed) {
                    *stream = None;
                }
            }
            CollectorSocket::Udp(..) | CollectorSocket::Tcp(None) => {}
        }
    }

    /// Notes an error of a UDP socket. `ECONNREFUSED` means that an earlier datagram was lost.
    fn note_refusal(&mut self, error: &io::Error) {
        if let CollectorSocket::Udp(_, state @ UdpState::Reachable) = &mut self.socket {
            if error.kind() == io::ErrorKind::ConnectionRefused {
                *state = UdpState::Unreachable;
                self.lost += 1;
            }
        }
    }

    /// Whether messages can be sent now.
    pub(super) fn is_open(&self) -> bool {
        matches!(
            self.socket,
            CollectorSocket::Udp(_, UdpState::Reachable) | CollectorSocket::Tcp(Some(_))
        )
    }

    /// If it is time for the next attempt, tries to reach a collector that did not listen.
    pub(super) fn connect(&mut self, now: Duration) -> Outcome {
        if self.is_open() {
            return Outcome::Unchanged;
        }
        if let CollectorSocket::Udp(socket, state) = &mut self.socket {
            if let UdpState::Probed(at) = *state {
                if now >= at && now - at < HEAD_START {
                    return Outcome::Unchanged;
                }
                if let Ok(None) = socket.take_error() {
                    *state = UdpState::Reachable;
                    return Outcome::Reachable;
                }
                *state = UdpState::Unreachable;
            }
        }
        // If the clock was set back, `next_try` is too far in the future, and is ignored.
        if now < self.next_try && self.next_try - now <= RETRY {
            return Outcome::Unchanged;
        }
        self.next_try = now + RETRY;
        match &mut self.socket {
            CollectorSocket::Udp(..) => Outcome::ProbeDue,
            CollectorSocket::Tcp(stream) => {
                *stream = tcp(self.address).ok();
                stream
                    .as_ref()
                    .map_or(Outcome::Unchanged, |_| Outcome::Connected)
            }
        }
    }
}

/// Whether the collector has closed the connection. Data from the collector is discarded.
fn is_closed(mut stream: &TcpStream) -> bool {
    let mut bytes = [0; 64];
    match wait::wait(Some(stream.as_fd()), None, Some(Duration::ZERO)) {
        Ok(woken) if woken.socket == 0 => false,
        Ok(_) => stream.read(&mut bytes).map_or(true, |count| count == 0),
        // The caller's next write to the connection returns this error.
        Err(_) => false,
    }
}

/// A UDP socket that is connected to the collector. The route chooses the local address.
fn udp(collector: SocketAddr) -> io::Result<UdpSocket> {
    let any = match collector {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(collector)?;
    // A collector that does not read must not stop the capture.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn tcp(collector: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&collector, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}
