//! Limits the number of connections. There is one limit for connections that have proven to be
//! nodes' connections, and another limit for other connections.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Maximum number of open connections that have proven to be nodes' connections. A cluster has at
/// most 128 nodes, with one connection each.
pub(super) const PROVEN: usize = 256;

/// Maximum number of open connections of unproven senders. This number suffices, because a node
/// proves itself in milliseconds.
pub(super) const UNPROVEN: usize = 256;

/// Maximum number of displaced connections that have not ended. Each of them still has a thread.
const ENDING: usize = 32;

/// A network with at most this many proven connections keeps them, because a node may have its
/// present connection and an earlier one that broke unnoticed.
const FEW: usize = 2;

#[derive(Clone, Default)]
pub(super) struct ConnectionLimits(Arc<Shared>);

#[derive(Default)]
struct Shared {
    open: Mutex<OpenConnections>,
    ended: Condvar,
}

#[derive(Default)]
struct OpenConnections {
    proven: ConnectionList,
    unproven: ConnectionList,
    /// Displaced connections whose slots have not been dropped yet.
    ending: usize,
    next: u64,
}

/// The connections, the oldest first.
#[derive(Default)]
struct ConnectionList(VecDeque<Connection>);

struct Connection {
    number: u64,
    from: SocketAddr,
    end: Box<dyn FnOnce() + Send>,
}

/// A connection's slot, which is freed when this value is dropped.
pub(super) struct ConnectionSlot {
    connection_limits: ConnectionLimits,
    pub(super) from: IpAddr,
    number: u64,
    /// Whether the connection has proven to be a node's connection.
    pub(super) is_proven: bool,
}

/// Why a connection must end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoSlot {
    /// A newer connection displaced this one.
    Displaced,
    /// All slots are taken by proven connections of networks with at most [`FEW`] connections each.
    Full,
}

impl ConnectionLimits {
    /// Returns a slot for a connection that has proven nothing. If all slots are taken, `take` ends
    /// another connection by calling its `end`, and returns the address of that connection. `take`
    /// chooses the /48 with the most connections. Within the /48 it chooses the /64 with the most,
    /// within the /64 the address with the most, and then the oldest connection.
    pub(super) fn take(
        &self,
        from: SocketAddr,
        end: impl FnOnce() + Send + 'static,
    ) -> (ConnectionSlot, Option<SocketAddr>) {
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.unproven.0.push_back(Connection {
            number,
            from,
            end: Box::new(end),
        });
        let mut displaced = None;
        if open.unproven.0.len() > UNPROVEN {
            displaced = open.unproven.displace(0);
            open.ending += usize::from(displaced.is_some());
        }
        drop(open);
        let displaced = displaced.map(Connection::end);
        self.await_ends();
        let slot = ConnectionSlot {
            connection_limits: self.clone(),
            from: from.ip(),
            number,
            is_proven: false,
        };
        (slot, displaced)
    }

    /// Waits until few displaced connections are left, because strangers can connect faster than
    /// threads end. Strangers can't prolong the wait, because after `end` all reads return, and the
    /// kernel resets a connection whose other side still sends.
    fn await_ends(&self) {
        let open = self.open();
        let waited = self.0.ended.wait_while(open, |it| it.ending >= ENDING);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    fn end(self) -> SocketAddr {
        (self.end)();
        self.from
    }
}

impl ConnectionList {
    /// Removes and returns a connection whose network has more than `few` connections.
    fn displace(&mut self, few: usize) -> Option<Connection> {
        let mut crowds: BTreeMap<(u32, IpAddr), usize> = BTreeMap::new();
        for network in self.0.iter().flat_map(|it| networks(it.from)) {
            *crowds.entry(network).or_default() += 1;
        }
        let crowd = |at: usize| networks(self.0[at].from).map(|network| crowds[&network]);
        // Of several maxima, max_by_key() returns the last one: here the oldest connection.
        let all = (0..self.0.len()).rev();
        let first = all.max_by_key(|at| crowd(*at));
        let first = first.filter(|at| crowd(*at)[0] > few);
        first.and_then(|at| self.0.remove(at))
    }

    fn has(&self, number: u64) -> bool {
        self.0.iter().any(|it| it.number == number)
    }

    fn remove(&mut self, number: u64) -> Option<Connection> {
        let at = self.0.iter().position(|it| it.number == number);
        at.and_then(|at| self.0.remove(at))
    }
}

/// The networks that contain an address, the largest first, with their prefix lengths. With IPv6,
/// one machine may have a site's /48 (RFC 6177), and often has a /64 (RFC 4291, section 2.5). With
/// IPv4, one machine has one address.
fn networks(from: SocketAddr) -> [(u32, IpAddr); 3] {
    [48, 64, 128].map(|bits| match from.ip().to_canonical() {
        IpAddr::V4(ip) => (bits, ip.into()),
        IpAddr::V6(ip) => {
            let prefix = ip.to_bits() & (u128::MAX << (128 - bits));
            (bits, Ipv6Addr::from_bits(prefix).into())
        }
    })
}

impl ConnectionSlot {
    /// Notes that the connection has proven to be a node's connection. If there are then too many
    /// proven connections, one of them ends as in [`ConnectionLimits::take`], and its address is
    /// returned. An error says that this connection must end.
    pub(super) fn prove(&mut self) -> Result<Option<SocketAddr>, NoSlot> {
        if self.is_proven {
            return Ok(None);
        }
        let mut open = self.connection_limits.open();
        let own = open.unproven.remove(self.number);
        open.proven.0.push_back(own.ok_or(NoSlot::Displaced)?);
        let mut displaced = None;
        if open.proven.0.len() > PROVEN {
            displaced = open.proven.displace(FEW);
            if displaced.is_none() {
                let own = open.proven.0.pop_back();
                open.unproven.0.extend(own);
                return Err(NoSlot::Full);
            }
            open.ending += 1;
        }
        drop(open);
        self.is_proven = true;
        Ok(displaced.map(Connection::end))
    }

    /// Whether a newer connection has displaced this one.
    pub(super) fn is_displaced(&self) -> bool {
        let open = self.connection_limits.open();
        !open.unproven.has(self.number) && !open.proven.has(self.number)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = self.connection_limits.open();
        let own = open.unproven.remove(self.number);
        if own.or_else(|| open.proven.remove(self.number)).is_none() {
            open.ending -= 1;
            self.connection_limits.0.ended.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
