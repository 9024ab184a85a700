//! Limits the connections: those that have proven to be nodes', and, apart from them, all others.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Connections at once that have proven to be nodes'. A cluster has at most 128 nodes.
pub(super) const PROVEN: usize = 256;

/// Connections at once that have not. Nodes prove themselves within milliseconds.
pub(super) const UNPROVEN: usize = 256;

/// Connections that may be about to end. Each still has a thread.
const ENDING: usize = 32;

/// Places that are shared out.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    taken: Mutex<Taken>,
    ended: Condvar,
}

#[derive(Default)]
struct Taken {
    proven: usize,
    /// The oldest first.
    unproven: VecDeque<Unproven>,
    /// Connections that were displaced, and whose place was not dropped yet.
    ending: usize,
    /// The number of the next connection.
    next: u64,
}

/// A connection that may be anybody's.
struct Unproven {
    number: u64,
    from: SocketAddr,
    end: Box<dyn FnOnce() + Send>,
}

/// A connection's place. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    from: IpAddr,
    number: u64,
    is_proven: bool,
}

/// Why a connection may not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoPlace {
    /// It was displaced by a newer connection.
    Displaced,
    /// There are [`PROVEN`] proven connections.
    Full,
}

impl Places {
    /// A place for a connection that has proven nothing. If all are taken, one of the others ends
    /// by its `end`, and its address is returned: of the network with most of them the address with
    /// most of them, and of this address the oldest connection.
    pub(super) fn take(
        &self,
        from: SocketAddr,
        end: impl FnOnce() + Send + 'static,
    ) -> (Place, Option<SocketAddr>) {
        let mut taken = self.taken();
        let mut displaced = None;
        if taken.unproven.len() >= UNPROVEN {
            let at = taken.next_to_go();
            displaced = taken.unproven.remove(at);
            taken.ending += usize::from(displaced.is_some());
        }
        let number = taken.next;
        taken.next += 1;
        taken.unproven.push_back(Unproven {
            number,
            from,
            end: Box::new(end),
        });
        drop(taken);
        let displaced = displaced.map(|it| {
            (it.end)();
            it.from
        });
        self.await_ends();
        let place = Place {
            places: self.clone(),
            from: from.ip(),
            number,
            is_proven: false,
        };
        (place, displaced)
    }

    /// Waits until few connections are about to end: strangers can connect faster than threads end.
    fn await_ends(&self) {
        let taken = self.taken();
        let waited = self.0.ended.wait_while(taken, |it| it.ending >= ENDING);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// The index of the unproven connection that goes first.
    fn next_to_go(&self) -> usize {
        let crowds = |of: fn(IpAddr) -> IpAddr| {
            let mut crowds: BTreeMap<IpAddr, usize> = BTreeMap::new();
            for it in &self.unproven {
                *crowds.entry(of(it.from.ip())).or_default() += 1;
            }
            crowds
        };
        let (networks, addresses) = (crowds(network), crowds(|ip| ip.to_canonical()));
        let crowd = |at: &usize| {
            let ip = self.unproven[*at].from.ip();
            (networks[&network(ip)], addresses[&ip.to_canonical()])
        };
        // Of several equal ones max_by_key() returns the last: here the oldest.
        let all = (0..self.unproven.len()).rev();
        all.max_by_key(crowd).unwrap_or(0)
    }

    /// Removes an unproven connection. Returns whether it was still there.
    fn remove(&mut self, number: u64) -> bool {
        let at = self.unproven.iter().position(|it| it.number == number);
        at.and_then(|at| self.unproven.remove(at)).is_some()
    }
}

/// The addresses that one machine can have: one with IPv4, a /64 with IPv6 (RFC 4291, section 2.5).
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}

impl Place {
    /// Where the connection comes from.
    pub(super) fn from(&self) -> IpAddr {
        self.from
    }

    /// Whether the connection has proven to be a node's.
    pub(super) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// The connection has proven to be a node's.
    ///
    /// # Errors
    ///
    /// It may not go on.
    pub(super) fn prove(&mut self) -> Result<(), NoPlace> {
        if self.is_proven {
            return Ok(());
        }
        let mut taken = self.places.taken();
        if !taken.unproven.iter().any(|it| it.number == self.number) {
            return Err(NoPlace::Displaced);
        }
        if taken.proven >= PROVEN {
            return Err(NoPlace::Full);
        }
        taken.remove(self.number);
        taken.proven += 1;
        self.is_proven = true;
        Ok(())
    }

    /// Whether a newer connection has displaced this one.
    pub(super) fn is_displaced(&self) -> bool {
        let taken = self.places.taken();
        !self.is_proven && !taken.unproven.iter().any(|it| it.number == self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if self.is_proven {
            taken.proven -= 1;
        } else if !taken.remove(self.number) {
            taken.ending -= 1;
            self.places.0.ended.notify_one();
        }
    }
}

impl std::fmt::Debug for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Taken")
            .field("proven", &self.proven)
            .field("unproven", &self.unproven.len())
            .field("ending", &self.ending)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
