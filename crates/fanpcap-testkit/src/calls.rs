//! UDP flows that stay open: each flow has a socket at both ends until the test drops [`Calls`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

use anyhow::{Result, ensure};

use crate::await_for::LIMIT;

/// The flows. Each socket stays in the network namespace in which it was created.
#[derive(Debug)]
pub struct Calls {
    server: UdpSocket,
    clients: Vec<UdpSocket>,
}

impl Calls {
    /// A server in the calling thread's network namespace.
    pub(crate) fn serve(address: IpAddr) -> Result<Self> {
        let server = UdpSocket::bind((address, 0))?;
        server.set_read_timeout(Some(LIMIT))?;
        let clients = Vec::new();
        Ok(Self { server, clients })
    }

    /// Adds `count` clients of the server, in the calling thread's network namespace.
    pub(crate) fn call(&mut self, count: usize) -> Result<()> {
        let server: SocketAddr = self.server.local_addr()?;
        for _ in 0..count {
            let client = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            client.connect(server)?;
            client.set_read_timeout(Some(LIMIT))?;
            self.clients.push(client);
        }
        Ok(())
    }

    /// Sends a request and a reply in each flow. Returns the number of packets.
    ///
    /// # Errors
    /// A request or a reply does not arrive.
    pub fn exchange(&self) -> Result<usize> {
        let mut text = [0; TEXT.len()];
        for client in &self.clients {
            client.send(TEXT)?;
            let (len, from) = self.server.recv_from(&mut text)?;
            self.server.send_to(&text[..len], from)?;
            ensure!(
                client.recv(&mut text)? == TEXT.len(),
                "a reply is shorter than the request"
            );
        }
        Ok(2 * self.clients.len())
    }
}

const TEXT: &[u8] = b"are you still there?";
