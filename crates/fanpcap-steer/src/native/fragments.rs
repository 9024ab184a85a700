//! Remembers the hash by which a datagram's first seen fragment was steered, so that the datagram's
//! other fragments go to the same member.

use std::collections::HashMap;
use std::net::IpAddr;

use fanpcap_wire::{Layers, Tag, number};

use crate::ir::{FRAGMENT_AGE_NS, FRAGMENTS_MAX};

/// Maximum number of datagrams in one generation.
const GENERATION: usize = FRAGMENTS_MAX as usize / 2;

/// A datagram's key, and the position of this fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    key: DatagramKey,
    is_later: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct DatagramKey {
    source: IpAddr,
    destination: IpAddr,
    id: u32,
    protocol: u8,
    /// The outermost tag's id, or 0. The id is in the key because a capture may see the same
    /// datagram twice, on both sides of a router, with different tags.
    vlan: u16,
}

#[derive(Clone, Copy, Debug)]
struct Remembered {
    hash: u32,
    /// The entry is from a later fragment that came before the first fragment.
    early: bool,
    since_ns: u64,
}

/// Datagrams in two generations. When the younger generation is full, the older one is dropped. A
/// lookup moves an entry to the younger generation, so the table keeps at least the
/// [`FRAGMENTS_MAX`] / 2 datagrams that were used last.
#[derive(Clone, Debug, Default)]
pub(super) struct Fragments {
    young: HashMap<DatagramKey, Remembered>,
    old: HashMap<DatagramKey, Remembered>,
    late: u64,
}

impl Datagram {
    /// The datagram to which the packet belongs; `None` if the packet is no fragment.
    pub(super) fn of(layers: &Layers<'_>) -> Option<Self> {
        let ip = layers.ip()?;
        if !ip.is_fragment() {
            return None;
        }
        // IPv6 identifies datagrams without the upper protocol, because only the first fragment may
        // contain it (RFC 8200 section 4.5).
        let protocol = ip.ipv4().map_or(number::FRAGMENT, |_| ip.protocol);
        let key = DatagramKey {
            source: ip.source(),
            destination: ip.destination(),
            id: ip.id?,
            protocol,
            vlan: layers.tag().map_or(0, Tag::id),
        };
        Some(Self {
            key,
            is_later: ip.is_later_fragment(),
        })
    }
}

impl Fragments {
    /// The hash that selects the member of a fragment whose own hash is `hash`.
    pub(super) fn follow(&mut self, datagram: Datagram, hash: u32, now_ns: u64) -> u32 {
        let Datagram { key, is_later } = datagram;
        if let Some(entry) = self.find(&key, now_ns) {
            if is_later {
                return entry.hash;
            }
            if entry.early {
                entry.early = false;
                return entry.hash;
            }
        }
        self.late = self.late.wrapping_add(is_later.into());
        let entry = Remembered {
            hash,
            early: is_later,
            since_ns: now_ns,
        };
        self.store(key, entry);
        hash
    }

    pub(super) fn late(&self) -> u64 {
        self.late
    }

    fn find(&mut self, key: &DatagramKey, now_ns: u64) -> Option<&mut Remembered> {
        if let Some(entry) = self.old.remove(key) {
            self.store(*key, entry);
        }
        let is_fresh =
            |entry: &&mut Remembered| now_ns.saturating_sub(entry.since_ns) <= FRAGMENT_AGE_NS;
        self.young.get_mut(key).filter(is_fresh)
    }

    fn store(&mut self, key: DatagramKey, entry: Remembered) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, entry);
    }
}
