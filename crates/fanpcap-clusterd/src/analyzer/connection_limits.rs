//! Limits the number of connections: apart for those that have proven to be nodes', and for all
//! others.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Connections at once that have proven to be nodes'. A cluster has at most 128 nodes, with one
/// connection each.
pub(super) const PROVEN: usize = 256;

/// Connections at once that have not. Nodes prove themselves within milliseconds.
pub(super) const UNPROVEN: usize = 256;

/// Connections that may be about to end. Each still has a thread.
const ENDING: usize = 32;

/// Connections of a network that are never too many: a node's connection, and an earlier one that
/// broke unnoticed.
const FEW: usize = 2;

/// The slots for connections.
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
    /// Connections that were displaced, and whose slot was not dropped yet.
    ending: usize,
    /// The number of the next connection.
    next: u64,
}

/// The oldest first.
#[derive(Default)]
struct ConnectionList(VecDeque<Connection>);

struct Connection {
    number: u64,
    from: SocketAddr,
    end: Box<dyn FnOnce() + Send>,
}

/// A connection's slot. Dropping it frees the slot.
pub(super) struct ConnectionSlot {
    connection_limits: ConnectionLimits,
    from: IpAddr,
    number: u64,
    is_proven: bool,
}

/// Why a connection may not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoSlot {
    /// It was displaced by a newer connection.
    Displaced,
    /// There are [`PROVEN`] proven connections, at most [`FEW`] of each network.
    Full,
}

impl ConnectionLimits {
    /// A slot for a connection that has proven nothing. If all are taken, one of the others ends by
    /// its `end`, and its address is returned: of the /48 with most of them the /64 with most of
    /// them, of this the address with most of them, and of this address the oldest connection.
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

    /// Waits until few connections are about to end: strangers can connect faster than threads end.
    /// Strangers can't make this wait longer: `end` makes all reads return, and the kernel resets a
    /// connection that goes on sending.
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
    /// Removes the connection to displace, if more than `few` come from its network.
    fn displace(&mut self, few: usize) -> Option<Connection> {
        let mut crowds: BTreeMap<(u32, IpAddr), usize> = BTreeMap::new();
        for network in self.0.iter().flat_map(|it| networks(it.from)) {
            *crowds.entry(network).or_default() += 1;
        }
        let crowd = |at: usize| networks(self.0[at].from).map(|network| crowds[&network]);
        // Of equal values max_by_key() returns the last: here the oldest.
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

/// The networks that an address is in, the largest first, with the bits of their prefixes. With
/// IPv6, one machine may have a site's /48 (RFC 6177), and often has a /64 (RFC 4291, section 2.5).
/// With IPv4, it has one address.
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
    /// Where the connection comes from.
    pub(super) fn from(&self) -> IpAddr {
        self.from
    }

    /// Whether the connection has proven to be a node's.
    pub(super) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The connection has proven to be a node's. If too many have, one of them ends as in
    /// [`ConnectionLimits::take`], and its address is returned.
    ///
    /// # Errors
    ///
    /// It may not go on.
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
