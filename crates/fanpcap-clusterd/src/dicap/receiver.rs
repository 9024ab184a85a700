//! Receives datagrams of nodes. The datagrams contain headers of packets, without a time, without a
//! number, and without a proof of the sender.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap_cluster::dicap::{DATAGRAM_BYTES, headers_of};
use fanpcap_cluster::{NODES, NodeId};
use fanpcap_terminal::server::not_listening;

/// Maximum number of datagrams that may wait for the analyzer.
const QUEUE: usize = 4096;

/// The pause after an error of the socket.
const PAUSE: Duration = Duration::from_millis(10);

/// A datagram and its sender.
#[derive(Debug)]
pub(crate) struct Datagram {
    pub(crate) from: NodeId,
    pub(crate) bytes: Vec<u8>,
}

/// Counts refused and dropped datagrams.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Datagrams that do not have the paper's format, or that do not come from a node's address.
    pub(crate) refused: AtomicU64,
    /// Headers in datagrams that were dropped because the queue was full.
    pub(crate) dropped: AtomicU64,
}

/// Maximum number of remembered addresses. Without a key, strangers can pretend to be nodes.
const SENDERS: usize = 2 * NODES;

/// The addresses whose datagrams are accepted.
///
/// If the cluster has a key or certificates, only nodes can send counts. Then these are the
/// addresses from which nodes send their counts. Otherwise anybody can send counts. Then the first
/// [`SENDERS`] other addresses are accepted too, because the paper's nodes send no counts.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    /// For each address, when the last counts came, by a clock that never jumps.
    counted: Mutex<BTreeMap<IpAddr, u64>>,
    others: Option<Mutex<BTreeSet<IpAddr>>>,
}

impl Senders {
    fn new(has_keys: bool) -> Self {
        Self {
            others: (!has_keys).then(Mutex::default),
            ..Self::default()
        }
    }

    /// Notes that a node's counts came from this address at this time. If there are more than
    /// [`SENDERS`] addresses, forgets the address that has been silent for the longest time.
    /// Addresses, and not node ids, are counted, because a connection proves no node id.
    pub(crate) fn take(&self, from: IpAddr, at: u64) {
        let mut senders = self.senders();
        senders.insert(from.to_canonical(), at);
        if senders.len() > SENDERS {
            let silent = senders.iter().min_by_key(|(_, at)| **at);
            if let Some((&silent, _)) = silent {
                senders.remove(&silent);
            }
        }
    }

    fn has(&self, from: IpAddr) -> bool {
        let from = from.to_canonical();
        self.senders().contains_key(&from) || self.is_other(from)
    }

    fn is_other(&self, from: IpAddr) -> bool {
        let Some(others) = &self.others else {
            return false;
        };
        let mut others = others.lock().unwrap_or_else(PoisonError::into_inner);
        others.contains(&from) || others.len() < SENDERS && others.insert(from)
    }

    fn senders(&self) -> MutexGuard<'_, BTreeMap<IpAddr, u64>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Receives the datagrams that are sent to an address of the analyzer.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) queue: mpsc::Receiver<Datagram>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) senders: Arc<Senders>,
    /// How many headers were received.
    pub(crate) headers: u64,
}

impl Receiver {
    /// Listens on an address. `has_keys` says whether the cluster has a key or certificates.
    pub(crate) fn open(on: SocketAddr, has_keys: bool) -> Result<Self> {
        let socket = UdpSocket::bind(on).map_err(|error| not_listening(on, &error))?;
        let (to, queue) = sync_channel(QUEUE);
        let counts = Arc::new(Counts::default());
        let of_thread = Arc::clone(&counts);
        let senders = Arc::new(Senders::new(has_keys));
        let believed = Arc::clone(&senders);
        let take = move || {
            // The buffer has one byte more than the longest datagram, to notice longer datagrams.
            let mut buffer = [0; DATAGRAM_BYTES + 1];
            loop {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                    thread::sleep(PAUSE);
                    continue;
                };
                let headers = headers_of(&buffer[..length]);
                let Some(headers) = headers.filter(|_| believed.has(from.ip())) else {
                    of_thread.refused.fetch_add(1, Ordering::Relaxed);
                    continue;
                };
                let headers = headers.len() as u64;
                let datagram = Datagram {
                    from: sender(from.ip()),
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
            senders,
            headers: 0,
        })
    }
}

/// The id for a sender's address: the 32 bits of an IPv4 address, or the last 32 bits of an IPv6
/// address. The datagrams have no node id.
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
    fn addresses_of_counts_are_senders() {
        let senders = Senders::new(true);
        let [node, faulty, stranger] = [1, 2, 3].map(|last| IpAddr::from([10, 0, 0, last]));
        assert!(!senders.has(node));
        senders.take("::ffff:10.0.0.1".parse().unwrap(), 1);
        assert!(senders.has(node) && !senders.has(stranger));
        // One address sends counts in the names of many nodes.
        (2..10_000).for_each(|at| senders.take(faulty, at));
        assert!(senders.has(node));
        // 10,000 other addresses send counts, and the node still sends its counts.
        for number in 0..10_000_u32 {
            senders.take(
                IpAddr::from(number.to_be_bytes()),
                10_000 + u64::from(number),
            );
            senders.take(node, 10_000 + u64::from(number));
        }
        assert!(senders.has(node) && !senders.has(faulty));
        assert_eq!(senders.senders().len(), SENDERS);
    }

    #[test]
    fn without_keys_nodes_that_send_no_counts_are_taken_up_to_a_number() {
        let senders = Senders::new(false);
        let address = |number: usize| IpAddr::from(u32::try_from(number).unwrap().to_be_bytes());
        assert!((0..SENDERS).all(|number| senders.has(address(number))));
        assert!(!senders.has(address(SENDERS)) && senders.has(address(0)));
        senders.take(address(SENDERS), 1);
        assert!(senders.has(address(SENDERS)));
    }
}
