//! Datagrams that wait to be sent.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::body::Body;
use super::endpoint::Endpoint;
use super::envelope::Peer;

/// The maximum number of waiting datagrams. Normally few wait, because the caller soon takes them.
const WAITING: usize = 65_536;

/// Datagrams that wait to be sent, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Outbox(VecDeque<(SocketAddr, Vec<u8>)>);

impl Outbox {
    pub(super) fn put(&mut self, to: SocketAddr, datagram: Vec<u8>) {
        if self.0.len() < WAITING {
            self.0.push_back((to, datagram));
        }
    }

    /// Seals a message, and queues its datagrams.
    pub(super) fn say(
        &mut self,
        by: &mut Endpoint,
        (to, peer): (SocketAddr, Option<Peer>),
        body: &Body,
        transfer: u32,
    ) {
        for datagram in by.seal(peer, body, transfer) {
            self.put(to, datagram);
        }
    }

    pub(super) fn take(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        self.0.pop_front()
    }
}
