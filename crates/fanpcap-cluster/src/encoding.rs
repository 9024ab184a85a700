//! A topology as bytes: what etcd stores, and what the control protocol sends in chunks.
//!
//! All numbers are big-endian. The bytes are, in their order:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version of the encoding |
//! | 8 | epoch |
//! | 1, 4 | selection: key, initial value |
//! | 1, then 7 each | nodes: slot, node id, weight |
//! | 1, then 7 or 19 each | analyzers: 4 or 6, address, port |
//! | 4096 | the owner's slot of each bucket |
//! | 1 | phase: 0 stable, 1 union; a stable topology ends here |
//! | 512 | which buckets move: bucket `b` is bit `b % 8` of byte `b / 8` |
//! | 1 each | the slot of the next owner of each bucket that moves |

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use fanpcap_buckets::layout::BUCKETS;
use fanpcap_buckets::{Owners, Slot};
use fanpcap_select::{Key, Selection};

use crate::identity::NodeId;
use crate::topology::{ANALYZERS, NODES, Seat, Topology, TopologyError};

#[cfg(test)]
mod tests;

/// Version of the encoding that [`Topology::encode`] writes, and the only one that is read.
const VERSION: u8 = 1;

/// Bytes of a map of moving buckets.
const MAP: usize = BUCKETS / 8;

/// Most bytes that a topology is encoded in.
pub const MOST_ENCODED: usize = 16 + 7 * NODES + 19 * ANALYZERS + BUCKETS + MAP + BUCKETS;

/// Why bytes are no topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// They end before the topology does.
    Short,
    /// They go on after the topology, or exceed [`MOST_ENCODED`].
    Long,
    /// Another version of the encoding.
    Version(u8),
    /// A key, phase or address family of an unknown number.
    Unknown,
    /// Bytes that no encoder writes: a union in which no bucket moves, or one moves to its owner.
    Odd,
    /// A topology that no node can follow.
    Topology(TopologyError),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "the topology's bytes end too early"),
            Self::Long => write!(f, "there are bytes after the topology"),
            Self::Version(version) => write!(
                f,
                "the topology has version {version}, this fanpcap reads {VERSION}: update it"
            ),
            Self::Unknown => write!(
                f,
                "the topology has a key, phase or address that is unknown"
            ),
            Self::Odd => write!(f, "the topology is a union without changes"),
            Self::Topology(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Topology {
    /// The topology as bytes, at most [`MOST_ENCODED`]. Of IPv6 addresses neither flow label nor
    /// scope is kept.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(MOST_ENCODED);
        to.push(VERSION);
        to.extend(self.epoch.to_be_bytes());
        to.push(number(self.selection.key));
        to.extend(self.selection.initial.to_be_bytes());
        to.push(count(self.seats.len()));
        for seat in &self.seats {
            to.push(seat.slot.0);
            to.extend(seat.node.0.to_be_bytes());
            to.extend(seat.weight.to_be_bytes());
        }
        to.push(count(self.analyzers.len()));
        for analyzer in &self.analyzers {
            put_address(&mut to, analyzer);
        }
        to.extend(self.owners.iter().map(|&owner| slot_byte(owner)));
        match &self.heirs {
            None => to.push(0),
            Some(heirs) => put_heirs(&mut to, &self.owners, heirs),
        }
        to
    }

    /// Reads a topology that [`Topology::encode`] has written.
    ///
    /// # Errors
    ///
    /// Why the bytes are no topology that nodes can follow.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        if bytes.len() > MOST_ENCODED {
            return Err(DecodeError::Long);
        }
        let mut from = Reader(bytes);
        match from.byte()? {
            VERSION => (),
            version => return Err(DecodeError::Version(version)),
        }
        let epoch = u64::from_be_bytes(from.array()?);
        let key = key(from.byte()?)?;
        let initial = u32::from_be_bytes(from.array()?);
        let seats = (0..from.byte()?)
            .map(|_| from.seat())
            .collect::<Result<_, _>>()?;
        let analyzers = (0..from.byte()?)
            .map(|_| from.address())
            .collect::<Result<_, _>>()?;
        let owners = from.owners()?;
        let heirs = match from.byte()? {
            0 => None,
            1 => Some(from.heirs(&owners)?),
            _ => return Err(DecodeError::Unknown),
        };
        if !from.0.is_empty() {
            return Err(DecodeError::Long);
        }
        let topology = Self {
            epoch,
            selection: Selection { key, initial },
            seats,
            owners,
            heirs,
            analyzers,
        };
        topology.check().map_err(DecodeError::Topology)?;
        Ok(topology)
    }
}

/// A number of nodes or analyzers; both are below 256.
fn count(len: usize) -> u8 {
    u8::try_from(len).unwrap_or(u8::MAX)
}

/// The slot of an owner. A bucket without an owner gets a slot that no node can have.
fn slot_byte(owner: Option<Slot>) -> u8 {
    owner.map_or(u8::MAX, |slot| slot.0)
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

fn put_heirs(to: &mut Vec<u8>, owners: &Owners, heirs: &Owners) {
    let moves = || (0..BUCKETS).filter(|&bucket| owners[bucket] != heirs[bucket]);
    let mut map = [0_u8; MAP];
    for bucket in moves() {
        map[bucket / 8] |= 1 << (bucket % 8);
    }
    to.push(1);
    to.extend(map);
    to.extend(moves().map(|bucket| slot_byte(heirs[bucket])));
}

fn number(key: Key) -> u8 {
    match key {
        Key::Packet => 0,
        Key::Flow => 1,
        Key::RoundRobin => 2,
        Key::Identification => 3,
    }
}

fn key(number: u8) -> Result<Key, DecodeError> {
    Ok(match number {
        0 => Key::Packet,
        1 => Key::Flow,
        2 => Key::RoundRobin,
        3 => Key::Identification,
        _ => return Err(DecodeError::Unknown),
    })
}

/// The bytes that are not read yet.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    fn seat(&mut self) -> Result<Seat, DecodeError> {
        Ok(Seat {
            slot: Slot(self.byte()?),
            node: NodeId(u32::from_be_bytes(self.array()?)),
            weight: u16::from_be_bytes(self.array()?),
        })
    }

    fn address(&mut self) -> Result<SocketAddr, DecodeError> {
        let ip = match self.byte()? {
            4 => IpAddr::from(self.array::<4>()?),
            6 => IpAddr::from(self.array::<16>()?),
            _ => return Err(DecodeError::Unknown),
        };
        Ok(SocketAddr::new(ip, u16::from_be_bytes(self.array()?)))
    }

    fn owners(&mut self) -> Result<Box<Owners>, DecodeError> {
        let slots: [u8; BUCKETS] = self.array()?;
        Ok(Box::new(slots.map(|slot| Some(Slot(slot)))))
    }

    fn heirs(&mut self, owners: &Owners) -> Result<Box<Owners>, DecodeError> {
        let map: [u8; MAP] = self.array()?;
        let mut heirs = Box::new(*owners);
        for (bucket, heir) in heirs.iter_mut().enumerate() {
            if map[bucket / 8] & (1 << (bucket % 8)) != 0 {
                let owner = heir.replace(Slot(self.byte()?));
                if *heir == owner {
                    return Err(DecodeError::Odd);
                }
            }
        }
        match map == [0; MAP] {
            true => Err(DecodeError::Odd),
            false => Ok(heirs),
        }
    }
}
