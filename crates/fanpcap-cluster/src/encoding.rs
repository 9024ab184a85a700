//! A topology as bytes: what etcd stores, and what the control protocol sends in chunks.
//!
//! All numbers are big-endian. `2, then 8 each` is a count in 2 bytes, then 8 bytes for each item.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version of the encoding: 1, or 2 with a filter |
//! | 2, then 1 each | version 2 only: the filter's text |
//! | 2, then 8 each | version 2 only: the filter's instructions |
//! | 8 | epoch |
//! | 1, 4 | selection: key, initial value |
//! | 1, then 7 each | nodes: slot, node id, weight |
//! | 1, then 7 or 19 each | analyzers: 4 or 6, address, port |
//! | 4096 | the owner's slot of each bucket |
//! | 1 | phase: 0 stable, 1 union; a stable topology ends here |
//! | 512 | which buckets move: bucket `b` is bit `b % 8` of byte `b / 8` |
//! | 1 each | the slot of the new owner of each bucket that moves |

use std::net::{IpAddr, SocketAddr};

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_buckets::{Owners, Slot};
use fanpcap_select::{Classic, Filter, Key, Selection};

use crate::identity::NodeId;
use crate::topology::{ANALYZERS, FILTER_CODE, FILTER_TEXT, NODES, NodeEntry, Topology};

#[cfg(test)]
mod tests;

/// Version of the encoding of topologies without a filter.
const PLAIN: u8 = 1;

/// Version of the encoding with a filter. Releases of fanpcap without filters refuse this version.
const VERSION: u8 = 2;

/// The size in bytes of the bitmap of moving buckets.
const MAP: usize = BUCKETS / 8;

/// The maximum number of bytes of an encoded topology.
pub const MOST_ENCODED: usize =
    16 + 7 * NODES + 19 * ANALYZERS + BUCKETS + MAP + BUCKETS + 4 + FILTER_TEXT + 8 * FILTER_CODE;

/// The selection keys. A key's index is its number in the encoding.
const KEYS: [Key; 4] = [Key::Packet, Key::Flow, Key::RoundRobin, Key::Identification];

impl Topology {
    /// The topology as bytes, at most [`MOST_ENCODED`]. IPv6's flow labels and scopes are not kept.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(MOST_ENCODED);
        match &self.filter {
            None => to.push(PLAIN),
            Some(filter) => put_filter(&mut to, filter),
        }
        to.extend(self.epoch.to_be_bytes());
        let key = KEYS.iter().position(|key| *key == self.selection.key);
        to.push(count(key.unwrap_or(usize::MAX)));
        to.extend(self.selection.initial.to_be_bytes());
        to.push(count(self.nodes.len()));
        for entry in &self.nodes {
            to.push(entry.slot.0);
            to.extend(entry.node.0.to_be_bytes());
            to.extend(entry.weight.to_be_bytes());
        }
        to.push(count(self.analyzers.len()));
        for analyzer in &self.analyzers {
            put_address(&mut to, analyzer);
        }
        to.extend(self.owners.iter().map(|&owner| slot_byte(owner)));
        match &self.new_owners {
            None => to.push(0),
            Some(new_owners) => put_new_owners(&mut to, &self.owners, new_owners),
        }
        to
    }

    /// Reads what [`Topology::encode`] has written; `None` if not valid, or of another version.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let filter = match from.byte()? {
            PLAIN => None,
            VERSION => Some(from.filter()?),
            _ => return None,
        };
        let epoch = u64::from_be_bytes(from.array()?);
        let key = *KEYS.get(usize::from(from.byte()?))?;
        let initial = u32::from_be_bytes(from.array()?);
        let entries = (0..from.byte()?).map(|_| from.entry());
        let entries = entries.collect::<Option<_>>()?;
        let analyzers = (0..from.byte()?).map(|_| from.address());
        let analyzers = analyzers.collect::<Option<_>>()?;
        let owners = from.owners()?;
        let new_owners = match from.byte()? {
            0 => None,
            1 => Some(from.new_owners(&owners)?),
            _ => return None,
        };
        let topology = Self {
            epoch,
            selection: Selection { key, initial },
            nodes: entries,
            owners,
            new_owners,
            analyzers,
            filter,
        };
        (from.0.is_empty() && topology.check().is_ok()).then_some(topology)
    }
}

/// A count of nodes or analyzers, or a key's index, as a byte. Each of these is below 256.
fn count(len: usize) -> u8 {
    u8::try_from(len).unwrap_or(u8::MAX)
}

/// The slot of an owner. For a bucket without an owner, the byte is 255, which is no node's slot.
fn slot_byte(owner: Option<Slot>) -> u8 {
    owner.map_or(u8::MAX, |slot| slot.0)
}

fn put_filter(to: &mut Vec<u8>, filter: &Filter) {
    to.push(VERSION);
    to.extend(length(filter.text.len()).to_be_bytes());
    to.extend(filter.text.bytes());
    to.extend(length(filter.code.len()).to_be_bytes());
    for &Classic { code, jt, jf, k } in &filter.code {
        to.extend(code.to_be_bytes());
        to.extend([jt, jf]);
        to.extend(k.to_be_bytes());
    }
}

/// The length of a filter's text or code; both are below 65,536.
fn length(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

fn put_address(to: &mut Vec<u8>, address: &SocketAddr) {
    match address.ip() {
        IpAddr::V4(ip) => {
            to.push(4);
            to.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            to.push(6);
            to.extend(ip.octets());
        }
    }
    to.extend(address.port().to_be_bytes());
}

fn put_new_owners(to: &mut Vec<u8>, owners: &Owners, new_owners: &Owners) {
    let moves = || (0..BUCKETS).filter(|&bucket| owners[bucket] != new_owners[bucket]);
    let mut map = [0_u8; MAP];
    for bucket in moves() {
        map[bucket / 8] |= 1 << (bucket % 8);
    }
    to.push(1);
    to.extend(map);
    to.extend(moves().map(|bucket| slot_byte(new_owners[bucket])));
}

/// The bytes that are not read yet.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn filter(&mut self) -> Option<Filter> {
        let len = usize::from(u16::from_be_bytes(self.array()?));
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        let text = std::str::from_utf8(text).ok()?.to_owned();
        let len = u16::from_be_bytes(self.array()?);
        let code = (0..len).map(|_| self.instruction());
        let code = code.collect::<Option<_>>()?;
        Some(Filter { text, code })
    }

    fn instruction(&mut self) -> Option<Classic> {
        let code = u16::from_be_bytes(self.array()?);
        let [jt, jf] = self.array()?;
        let k = u32::from_be_bytes(self.array()?);
        Some(Classic { code, jt, jf, k })
    }

    fn entry(&mut self) -> Option<NodeEntry> {
        Some(NodeEntry {
            slot: Slot(self.byte()?),
            node: NodeId(u32::from_be_bytes(self.array()?)),
            weight: u16::from_be_bytes(self.array()?),
        })
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let ip = match self.byte()? {
            4 => IpAddr::from(self.array::<4>()?),
            6 => IpAddr::from(self.array::<16>()?),
            _ => return None,
        };
        Some(SocketAddr::new(ip, u16::from_be_bytes(self.array()?)))
    }

    fn owners(&mut self) -> Option<Box<Owners>> {
        let slots: [u8; BUCKETS] = self.array()?;
        Some(Box::new(slots.map(|slot| Some(Slot(slot)))))
    }

    fn new_owners(&mut self, owners: &Owners) -> Option<Box<Owners>> {
        let map: [u8; MAP] = self.array()?;
        let mut new_owners = Box::new(*owners);
        for (bucket, new_owner) in new_owners.iter_mut().enumerate() {
            if map[bucket / 8] & (1 << (bucket % 8)) != 0 {
                let owner = new_owner.replace(Slot(self.byte()?));
                if *new_owner == owner {
                    return None;
                }
            }
        }
        // Refuses a union that moves no bucket, because no encoder writes such a union.
        (map != [0; MAP]).then_some(new_owners)
    }
}
