//! Real conversations over real sockets: request and reply, TCP and UDP, IPv4 and IPv6.

use std::io::{Read, Write};
use std::net::{
    IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket,
};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, ensure};

use crate::await_for::LIMIT;

/// Servers that run until they have held their conversations.
#[derive(Debug)]
pub struct Servers {
    threads: Vec<JoinHandle<Result<()>>>,
}

impl Servers {
    /// Waits for the servers.
    ///
    /// # Errors
    /// The error of the first server that failed.
    pub fn finish(self) -> Result<()> {
        for thread in self.threads {
            thread.join().expect("a server does not panic")?;
        }
        Ok(())
    }
}

/// Starts a TCP and a UDP server on each address, in the calling thread's namespace, for `count`
/// conversations each.
///
/// # Errors
/// An address can't be bound.
pub fn serve(addresses: &[IpAddr], count: usize) -> Result<Servers> {
    let mut threads = Vec::new();
    for &address in addresses {
        let address = SocketAddr::new(address, PORT);
        let listener = TcpListener::bind(address).with_context(|| format!("TCP {address}"))?;
        threads.push(thread::spawn(move || echo_streams(&listener, count)));
        let socket = UdpSocket::bind(address).with_context(|| format!("UDP {address}"))?;
        threads.push(thread::spawn(move || echo_datagrams(&socket, count)));
    }
    Ok(Servers { threads })
}

/// Holds `count` TCP and `count` UDP conversations with each server, one after another.
///
/// # Errors
/// A reply is missing or differs from the request.
pub fn hold(servers: &[IpAddr], count: usize) -> Result<()> {
    for &server in servers {
        let server = SocketAddr::new(server, PORT);
        for _ in 0..count {
            hold_by_tcp(server).with_context(|| format!("a conversation with TCP {server}"))?;
            hold_by_udp(server).with_context(|| format!("a conversation with UDP {server}"))?;
        }
    }
    Ok(())
}

/// Sends `count` datagrams to `sink` from each of `sockets` sockets. Waits for one socket's
/// datagrams before the next socket sends, so that no queue overflows.
///
/// # Errors
/// A socket can't be created, or a datagram does not arrive.
pub fn babble(sink: &UdpSocket, sockets: usize, count: usize) -> Result<()> {
    sink.set_read_timeout(Some(LIMIT))?;
    let address = sink.local_addr()?;
    let mut datagram = [0; MESSAGE.len()];
    for _ in 0..sockets {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for _ in 0..count {
            socket.send_to(&MESSAGE, address)?;
        }
        for _ in 0..count {
            sink.recv(&mut datagram)
                .context("sending a datagram that fills blocks")?;
        }
    }
    Ok(())
}

fn echo_streams(listener: &TcpListener, count: usize) -> Result<()> {
    for _ in 0..count {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text)?;
        stream.write_all(&text)?;
    }
    Ok(())
}

fn echo_datagrams(socket: &UdpSocket, count: usize) -> Result<()> {
    socket.set_read_timeout(Some(LIMIT))?;
    let mut datagram = [0; MESSAGE.len()];
    for _ in 0..count * DATAGRAMS {
        let (len, client) = socket.recv_from(&mut datagram)?;
        socket.send_to(&datagram[..len], client)?;
    }
    Ok(())
}

fn hold_by_tcp(server: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&server, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(&MESSAGE)?;
    stream.shutdown(Shutdown::Write)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    ensure!(reply == MESSAGE, "the reply differs from the request");
    Ok(())
}

fn hold_by_udp(server: SocketAddr) -> Result<()> {
    // Each conversation has a port of its own: the kernel reuses UDP ports, and two conversations
    // on one port would be one flow. (The kernel does not reuse a TCP port while the closed
    // connection is in the state TIME_WAIT.)
    static NEXT_PORT: AtomicU16 = AtomicU16::new(10_000);
    let port = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, port))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(LIMIT))?;
    let mut reply = [0; MESSAGE.len()];
    for _ in 0..DATAGRAMS {
        socket.send(&MESSAGE)?;
        ensure!(
            socket.recv(&mut reply)? == MESSAGE.len(),
            "the reply is shorter than the request"
        );
    }
    Ok(())
}

/// The servers' port.
pub const PORT: u16 = 4747;
const DATAGRAMS: usize = 3;
const MESSAGE: [u8; 1000] = [0x5a; 1000];
