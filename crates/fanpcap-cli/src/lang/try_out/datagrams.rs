//! Fragmented datagrams: whether the same member gets all fragments.

use std::collections::HashMap;
use std::net::IpAddr;

use fanpcap_wire::{Ip, number};

use super::members::Members;
use super::place::FlowSide;

/// Longest time between a datagram's fragments. Hosts wait this long for fragments, too (RFC 791,
/// ipfrag_time).
const AGE_NS: u64 = 30_000_000_000;
/// The least number of datagrams that are remembered.
const KEPT: usize = 1 << 16;

/// The datagrams of a capture, in two generations. When the younger generation is full, it replaces
/// the older generation, so that the memory is bounded.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    young: HashMap<Key, Datagram>,
    old: HashMap<Key, Datagram>,
    pub(super) total: u64,
    /// Datagrams of which no member got all fragments.
    pub(super) split: u64,
    /// Datagrams of which a later fragment came before the first one.
    pub(super) late: u64,
}

/// The key that a datagram's fragments share (RFC 791; without the protocol in RFC 8200 section
/// 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    id: u32,
    protocol: u8,
}

#[derive(Clone, Copy, Debug)]
struct Datagram {
    /// Flow and direction, from the first fragment.
    place: Option<FlowSide>,
    late: bool,
    /// Members that got all fragments so far.
    all: Members,
    last_ns: u64,
}

impl Datagrams {
    /// Notes a fragment that the members `to` get; `shown` is the flow in the fragment's headers.
    /// Returns the datagram's flow, or `None` before the first fragment came. Also returns whether
    /// a later fragment came before the first one.
    pub(super) fn take(
        &mut self,
        ip: &Ip<'_>,
        shown: FlowSide,
        to: Members,
        now_ns: u64,
    ) -> (Option<FlowSide>, bool) {
        let Some(key) = Key::of(ip) else {
            return (Some(shown), false);
        };
        let known = self.find(&key, now_ns);
        let is_later = ip.is_later_fragment();
        // A second first fragment begins another datagram with the same identification.
        let known = known.filter(|known| is_later || known.place.is_none());
        let mut datagram = known.unwrap_or_else(|| {
            self.total += 1;
            self.late += u64::from(is_later);
            Datagram {
                place: None,
                late: is_later,
                all: to,
                last_ns: now_ns,
            }
        });
        if !is_later {
            datagram.place = Some(shown);
        }
        let was_whole = !datagram.all.is_empty();
        datagram.all = datagram.all.and(to);
        self.split += u64::from(was_whole && datagram.all.is_empty());
        datagram.last_ns = now_ns;
        self.store(key, datagram);
        (datagram.place, datagram.late)
    }

    fn find(&mut self, key: &Key, now_ns: u64) -> Option<Datagram> {
        let known = self.young.get(key).or_else(|| self.old.get(key)).copied();
        known.filter(|known| now_ns.saturating_sub(known.last_ns) <= AGE_NS)
    }

    fn store(&mut self, key: Key, datagram: Datagram) {
        if self.young.len() >= KEPT && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, datagram);
    }
}

impl Key {
    fn of(ip: &Ip<'_>) -> Option<Self> {
        Some(Self {
            source: ip.source(),
            destination: ip.destination(),
            id: ip.id?,
            protocol: ip.ipv4().map_or(number::FRAGMENT, |_| ip.protocol),
        })
    }
}
