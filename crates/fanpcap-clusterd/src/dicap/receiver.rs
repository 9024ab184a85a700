//! Takes datagrams: headers of packets, without a time, a number or a proof of their sender.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap_cluster::NodeId;
use fanpcap_cluster::dicap::{DATAGRAM_BYTES, headers_of};
use fanpcap_terminal::server::not_listening;

/// Datagrams that may wait for the analyzer.
const QUEUE: usize = 4096;

/// Senders whose datagrams are taken. Whoever reaches the port can send by any address, and each
/// costs memory.
const SENDERS: usize = 256;

/// How long a socket that fails rests.
const REST: Duration = Duration::from_millis(10);

/// A datagram and its sender.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) from: NodeId,
    pub(crate) bytes: Vec<u8>,
}

/// What has become of datagrams.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Datagrams that are none of the paper's, or of senders beyond [`SENDERS`].
    pub(crate) refused: AtomicU64,
    /// Headers in datagrams that found the queue full.
    pub(crate) dropped: AtomicU64,
}

/// Those whose datagrams are taken: who came first.
#[derive(Debug, Default)]
struct Senders(BTreeSet<NodeId>);

impl Senders {
    /// Whether this one's are.
    fn take(&mut self, sender: NodeId) -> bool {
        self.0.contains(&sender) || self.0.len() < SENDERS && self.0.insert(sender)
    }
}

/// An analyzer's end: the datagrams that come to an address.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) queue: mpsc::Receiver<Datagram>,
    pub(crate) counts: Arc<Counts>,
    /// Headers that were taken.
    pub(crate) headers: u64,
}

impl Receiver {
    /// Listens on an address.
    ///
    /// # Errors
    ///
    /// The address can't be listened on.
    pub(crate) fn open(on: SocketAddr) -> Result<Self> {
        let socket = UdpSocket::bind(on).map_err(|error| not_listening(on, &error))?;
        let (to, queue) = sync_channel(QUEUE);
        let counts = Arc::new(Counts::default());
        let of_thread = Arc::clone(&counts);
        let take = move || {
            // One byte more than a datagram has, to recognize longer ones, which are refused.
            let mut buffer = [0; DATAGRAM_BYTES + 1];
            let mut senders = Senders::default();
            loop {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                    thread::sleep(REST);
                    continue;
                };
                let sender = sender(from.ip());
                let headers = headers_of(&buffer[..length]).ok();
                let Some(headers) = headers.filter(|_| senders.take(sender)) else {
                    of_thread.refused.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let headers = headers.len() as u64;
                let datagram = Datagram {
                    from: sender,
                    bytes: buffer[..length].to_vec(),
                };
                match to.try_send(datagram) {
                    Ok(()) => {}
                    Err(TrySendError::Full(_)) => {
                        of_thread.dropped.fetch_add(headers, Ordering::Relaxed);
                    }
                    Err(TrySendError::Disconnected(_)) => return,
                }
            }
        };
        let thread = thread::Builder::new().name("dicap".to_owned());
        thread.spawn(take).context("starting a thread")?;
        Ok(Self {
            queue,
            counts,
            headers: 0,
        })
    }
}

/// The format does not say which node sends. Its address stands for it: IPv4's 32 bits, IPv6's
/// last.
fn sender(ip: IpAddr) -> NodeId {
    NodeId(match ip {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => u32::from_be_bytes(ip.octets()[12..].try_into().unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_are_bounded() {
        let mut senders = Senders::default();
        let id = |number: usize| NodeId(u32::try_from(number).unwrap());
        assert!((0..SENDERS).all(|number| senders.take(id(number))));
        assert!(!senders.take(id(SENDERS)));
        assert!(senders.take(id(0)));
    }
}
