//! The UDP sockets of a participant.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fanpcap_cluster::control::DATAGRAM;
use fanpcap_linux::wait::events;

/// Maximum number of datagrams that are received before replies are sent.
const BATCH: usize = 256;

/// The longest single wait for datagrams.
const NAP: Duration = Duration::from_millis(100);

/// The sockets of a participant, and its clock.
#[derive(Debug)]
pub(super) struct ControlSockets {
    own: UdpSocket,
    /// A socket that listens to a multicast group.
    group: Option<UdpSocket>,
    began: Instant,
    /// Datagrams that could not be sent. The protocol repeats important messages.
    unsent: u64,
}

impl ControlSockets {
    pub(super) fn new(local: SocketAddr) -> io::Result<Self> {
        let own = UdpSocket::bind(local)?;
        own.set_nonblocking(true)?;
        Ok(Self {
            own,
            group: None,
            began: Instant::now(),
            unsent: 0,
        })
    }

    /// Opens a socket of the address family of `others`, at the address `local`, on any port.
    pub(super) fn towards(others: &[SocketAddr], local: Option<IpAddr>) -> Result<Self> {
        let first = others
            .first()
            .context("there is no address of a coordinator")?;
        if others.iter().any(|one| one.is_ipv4() != first.is_ipv4()) {
            bail!("coordinators have IPv4 and IPv6 addresses; use one kind for all");
        }
        let any: IpAddr = match first {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let local = SocketAddr::new(local.unwrap_or(any), 0);
        Self::new(local).with_context(|| format!("opening the control socket on {local}"))
    }

    /// Also listens to a multicast group, on the device with the address `local`.
    pub(super) fn listen(&mut self, group: SocketAddr, local: Option<IpAddr>) -> Result<()> {
        let listen = || {
            let socket = UdpSocket::bind(group)?;
            socket.set_nonblocking(true)?;
            match (group.ip(), local) {
                (IpAddr::V4(ip), Some(IpAddr::V4(local))) => {
                    socket.join_multicast_v4(&ip, &local)?;
                }
                (IpAddr::V4(ip), _) => socket.join_multicast_v4(&ip, &Ipv4Addr::UNSPECIFIED)?,
                (IpAddr::V6(ip), _) => socket.join_multicast_v6(&ip, 0)?,
            }
            io::Result::Ok(socket)
        };
        let socket = listen().with_context(|| format!("joining the multicast group {group}"))?;
        self.group = Some(socket);
        Ok(())
    }

    /// Sets how many routers a multicast message may pass. Does nothing with IPv6.
    pub(super) fn set_multicast_ttl(&self, ttl: u8) -> io::Result<()> {
        match self.own.local_addr()? {
            SocketAddr::V4(_) => self.own.set_multicast_ttl_v4(u32::from(ttl)),
            SocketAddr::V6(_) => Ok(()),
        }
    }

    /// Time since the sockets were opened.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Sends a datagram. It is no error if the machine or the network is unreachable.
    pub(super) fn send(&mut self, to: SocketAddr, datagram: &[u8]) {
        if self.own.send_to(datagram, to).is_err() {
            self.unsent += 1;
        }
    }

    /// Waits at most `limit` for datagrams, and passes all datagrams that have come to `take`.
    pub(super) fn receive(
        &mut self,
        limit: Duration,
        mut take: impl FnMut(Duration, SocketAddr, &[u8]),
    ) -> io::Result<()> {
        let sockets: Vec<&UdpSocket> = [Some(&self.own), self.group.as_ref()]
            .into_iter()
            .flatten()
            .collect();
        let fds: Vec<_> = sockets.iter().map(|socket| socket.as_fd()).collect();
        events::poll(&fds, Some(limit.min(NAP)))?;
        // The buffer has one byte more than the longest message, to recognize longer datagrams.
        let mut buffer = [0; DATAGRAM + 1];
        for socket in sockets {
            for _ in 0..BATCH {
                match socket.recv_from(&mut buffer) {
                    Ok((len, from)) => take(self.began.elapsed(), from, &buffer[..len]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // The machine of a peer has answered that the peer's port is closed.
                    Err(_) => {}
                }
            }
        }
        Ok(())
    }
}
