//! A topology as AVPs: first the paper's AVPs, then the topology's encoding.
//!
//! The paper's AVPs name nodes, analyzers and selection. Only the encoding has the buckets' owners.

use fanpcap_select::Key;

use super::super::avp::{ANALYZER, List, code, halves, joined};
use super::super::fields::{BodyError, Fields};
use crate::encoding::MOST_ENCODED;
use crate::identity::Revision;
use crate::topology::{Phase, Topology};

/// The number of each selection key. The paper has two types of selection: 0 for round robin, and 1
/// for a hash (of the IP id). Our own types have numbers from 16 on.
const KEYS: [(Key, u32); 4] = [
    (Key::RoundRobin, 0),
    (Key::Identification, 1),
    (Key::Packet, 16),
    (Key::Flow, 17),
];

pub(super) fn key_number(key: Key) -> u32 {
    let of_key = KEYS.iter().find(|(one, _)| *one == key);
    of_key.map_or(u32::MAX, |(_, number)| *number)
}

pub(super) fn key(number: u32) -> Result<Key, BodyError> {
    let of_number = KEYS.iter().find(|(_, one)| *one == number);
    let key = of_number.map(|(key, _)| *key);
    key.ok_or(BodyError::Value(code::SELECTION_TYPE))
}

pub(super) fn write<'a>(to: &'a mut List, revision: Revision, topology: &Topology) -> &'a mut List {
    let [term, start] = halves(revision.0);
    to.put(code::TERM, term)
        .put(code::VALIDITY_START, start)
        .put_wide(code::EPOCH, topology.epoch)
        .put(code::PHASE, u32::from(topology.phase() == Phase::Union))
        .put(code::SELECTION_TYPE, key_number(topology.selection.key));
    for entry in &topology.nodes {
        to.put(code::NODE_ID, entry.node.0);
    }
    for analyzer in &topology.analyzers {
        to.put_address(ANALYZER, *analyzer);
    }
    to.put_bytes(&topology.encode())
}

pub(super) fn read(from: Fields<'_>) -> Result<(Revision, Topology), BodyError> {
    let revision = joined(from.one(code::TERM)?, from.one(code::VALIDITY_START)?);
    let revision = Revision(revision);
    let bytes = from.bytes(MOST_ENCODED).ok();
    let topology = bytes.and_then(|bytes| Topology::decode(&bytes));
    let topology = topology.ok_or(BodyError::Topology(revision))?;
    let nodes = topology.nodes.iter().map(|entry| entry.node.0);
    if !nodes.eq(from.all(code::NODE_ID)) {
        return Err(BodyError::Value(code::NODE_ID));
    }
    Ok((revision, topology))
}
