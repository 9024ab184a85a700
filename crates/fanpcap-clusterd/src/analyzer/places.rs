//! Limits the connections: all, and unproven ones from one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections at once.
const ALL: usize = 256;

/// Connections of one address that have not proven to be a node's. Others find room beside them.
const STRANGERS: usize = 64;

/// Places that are shared out.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<Mutex<Taken>>);

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    strangers: BTreeMap<IpAddr, usize>,
}

/// A connection's place. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    /// Where a stranger comes from; `None`: the connection is a node's.
    stranger: Option<IpAddr>,
}

impl Places {
    /// A place for a stranger from this address; `None` if there is none left.
    pub(super) fn take(&self, from: IpAddr) -> Option<Place> {
        let from = from.to_canonical();
        let mut taken = self.taken();
        let strangers = taken.strangers.get(&from).copied().unwrap_or(0);
        if taken.all >= ALL || strangers >= STRANGERS {
            return None;
        }
        taken.all += 1;
        taken.strangers.insert(from, strangers + 1);
        Some(Place {
            places: self.clone(),
            stranger: Some(from),
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whether the connection may still be anybody's.
    pub(super) fn is_strangers(&self) -> bool {
        self.stranger.is_some()
    }

    /// The connection has proven to be a node's.
    pub(super) fn prove(&mut self) {
        let Some(from) = self.stranger.take() else {
            return;
        };
        let mut taken = self.places.taken();
        if let Some(strangers) = taken.strangers.get_mut(&from) {
            *strangers -= 1;
            if *strangers == 0 {
                taken.strangers.remove(&from);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.prove();
        self.places.taken().all -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_leaves_places_to_others() {
        let places = Places::default();
        let [stranger, node] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let mut strangers: Vec<Place> = (0..ALL).map_while(|_| places.take(stranger)).collect();
        assert_eq!(strangers.len(), STRANGERS);
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert!(places.take(mapped).is_none(), "the same address");
        let kept = places.take(node).unwrap();
        // A connection that has proven to be a node's no longer counts as unproven.
        strangers.iter_mut().for_each(Place::prove);
        assert!(strangers.iter().all(|place| !place.is_strangers()));
        let more: Vec<Place> = (0..ALL).map_while(|_| places.take(stranger)).collect();
        assert_eq!(more.len(), STRANGERS);
        drop((more, strangers, kept));
        let taken = places.taken();
        assert_eq!((taken.all, taken.strangers.len()), (0, 0));
    }

    #[test]
    fn there_are_so_many_in_all() {
        let places = Places::default();
        let of = |address: u32| places.take(IpAddr::from(address.to_be_bytes()));
        let all: Vec<Place> = (0..1000).map_while(of).collect();
        assert_eq!(all.len(), ALL);
        drop(all);
        assert!(of(1).is_some());
    }
}
