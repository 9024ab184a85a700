//! Sends packets' first bytes to an analyzer, and never waits.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use fanpcap_cluster::dicap::{DatagramBuilder, HEADER_BYTES};

/// Sends a node's datagrams.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: UdpSocket,
    builder: DatagramBuilder,
    /// Headers that were sent, and that were not.
    pub(crate) sent: u64,
    pub(crate) lost: u64,
}

impl Sender {
    /// Sends to this address.
    ///
    /// # Errors
    ///
    /// There is no socket for it.
    pub(crate) fn open(to: SocketAddr) -> io::Result<Self> {
        let socket = match to {
            SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
            SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
        };
        socket.connect(to)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            builder: DatagramBuilder::default(),
            sent: 0,
            lost: 0,
        })
    }

    /// Sends a packet's first bytes with the next full datagram.
    pub(crate) fn push(&mut self, packet: &[u8]) {
        if let Some(datagram) = self.builder.push(packet) {
            self.send(&datagram);
        }
    }

    /// Sends what waits for its datagram to be full.
    pub(crate) fn flush(&mut self) {
        if let Some(datagram) = self.builder.flush() {
            self.send(&datagram);
        }
    }

    fn send(&mut self, datagram: &[u8]) {
        let headers = (datagram.len() / HEADER_BYTES) as u64;
        match self.socket.send(datagram) {
            Ok(_) => self.sent += headers,
            Err(_) => self.lost += headers,
        }
    }
}
