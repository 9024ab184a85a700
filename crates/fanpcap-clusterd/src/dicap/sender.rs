//! Sends packets' first bytes to an analyzer in datagrams, and never waits for the network.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use fanpcap_cluster::dicap::{DatagramBuilder, HEADER_BYTES};

/// Sends a node's datagrams.
#[derive(Debug)]
pub(crate) struct Sender {
    socket: UdpSocket,
    builder: DatagramBuilder,
    /// Headers that were sent, and headers that could not be sent.
    pub(crate) sent: u64,
    pub(crate) lost: u64,
}

impl Sender {
    /// Opens a socket that sends to this address.
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

    /// Adds a packet's first bytes to a datagram, and sends the datagram if it is full.
    pub(crate) fn push(&mut self, packet: &[u8]) {
        if let Some(datagram) = self.builder.push(packet) {
            self.send(&datagram);
        }
    }

    /// Sends the datagram that is not full yet.
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
