//! The state of a cluster for standbys and the operator, as AVPs.

use super::super::avp::{Avp, List, code, halves};
use super::super::fields::{BodyError, Fields};
use super::super::term::Term;
use super::{Leader, Member, desired, topology};
use crate::coordination::DesiredState;
use crate::identity::Revision;
use crate::topology::{NODES, Topology};

/// The maximum number of nodes in a coordinator's state.
const MOST: usize = 2 * NODES;

/// The maximum number of notes in a status. `NOTE_BYTES` is the maximum length of a note.
const NOTES: usize = 16;
const NOTE_BYTES: usize = 400;

/// The maximum number of AVPs of a state in a file.
const MOST_AVPS: usize = 24_000;

/// The state that a standby needs to become the active coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// The term of the coordinator that wrote the state.
    pub term: Term,
    /// The number of this state within its term. The first number of a term is random, and each
    /// change of the state adds one.
    pub number: u32,
    /// The cluster's topology.
    pub topology: Option<(Revision, Box<Topology>)>,
    /// The operator's settings.
    pub desired: DesiredState,
    /// The nodes that are alive.
    pub members: Vec<Member>,
}

/// A cluster's status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The active coordinator.
    pub leader: Leader,
    /// The cluster's topology.
    pub topology: Option<(Revision, Box<Topology>)>,
    /// The operator's settings.
    pub desired: DesiredState,
    /// The nodes that are alive, and how many milliseconds ago each sent its last message.
    pub members: Vec<(Member, u32)>,
    /// Datagrams that the coordinator refused, by cause.
    pub refused: Vec<(u32, u32)>,
    /// The coordinator's notes to the operator: at most 16 sentences of 400 bytes.
    pub notes: Vec<String>,
}

const STATE: u32 = 1;
const TOPOLOGY: u32 = 2;
const DESIRED: u32 = 3;
const MEMBER: u32 = 4;
const REFUSED: u32 = 5;
const NOTE: u32 = 6;

impl State {
    pub(super) fn write<'a>(&self, to: &'a mut List) -> &'a mut List {
        to.put(code::SECTION, STATE)
            .put(code::TERM, self.term.0)
            .put(code::STATE, self.number);
        write_shared(to, self.topology.as_ref(), &self.desired);
        for member in &self.members {
            member.write(to.put(code::SECTION, MEMBER));
        }
        to
    }

    pub(super) fn read(from: Fields<'_>) -> Result<Self, BodyError> {
        let mut state = Self::default();
        let mut is_begun = false;
        for (section, from) in sections(from) {
            match section {
                STATE => {
                    state.term = Term(from.one(code::TERM)?);
                    state.number = from.one(code::STATE)?;
                    is_begun = true;
                }
                TOPOLOGY => state.topology = Some(read_topology(from)?),
                DESIRED => state.desired = desired::read_all(from)?,
                MEMBER => state.members.push(Member::read(from)?),
                _ => {}
            }
        }
        match (is_begun, state.members.len() <= MOST) {
            (true, true) => Ok(state),
            (false, _) => Err(BodyError::Missing(code::SECTION)),
            (_, false) => Err(BodyError::Count(code::SECTION)),
        }
    }

    /// The state as bytes, for a coordinator's file.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = List::default();
        self.write(&mut to);
        let mut bytes = Vec::new();
        to.0.into_iter().for_each(|avp| avp.write(&mut bytes));
        bytes
    }

    /// Reads a state that [`State::encode`] wrote.
    ///
    /// # Errors
    /// Fails if the bytes are not a state.
    pub fn decode(bytes: &[u8]) -> Result<Self, BodyError> {
        let avps: Vec<Avp> = Avp::read_all(bytes).take(MOST_AVPS).collect();
        match avps.len() * Avp::BYTES == bytes.len() {
            true => Self::read(Fields(&avps)),
            false => Err(BodyError::Count(code::SECTION)),
        }
    }
}

impl Status {
    pub(super) fn write<'a>(&self, to: &'a mut List) -> &'a mut List {
        self.leader.write(to.put(code::SECTION, STATE));
        write_shared(to, self.topology.as_ref(), &self.desired);
        for (member, age) in &self.members {
            member.write(to.put(code::SECTION, MEMBER).put(code::AGE, *age));
        }
        for (cause, count) in &self.refused {
            to.put(code::SECTION, REFUSED);
            to.put(code::REFUSED, *cause).put(code::REFUSED, *count);
        }
        for note in self.notes.iter().take(NOTES) {
            to.put(code::SECTION, NOTE);
            let length = (0..=note.len().min(NOTE_BYTES)).rev();
            let length = length.into_iter().find(|at| note.is_char_boundary(*at));
            to.put_bytes(&note.as_bytes()[..length.unwrap_or(0)]);
        }
        to
    }

    pub(super) fn read(from: Fields<'_>) -> Result<Self, BodyError> {
        let mut leader = None;
        let mut topology = None;
        let mut desired = DesiredState::default();
        let mut members = Vec::new();
        let mut refused = Vec::new();
        let mut notes = Vec::new();
        for (section, from) in sections(from) {
            match section {
                STATE => leader = Some(Leader::read(from)?),
                TOPOLOGY => topology = Some(read_topology(from)?),
                DESIRED => desired = desired::read_all(from)?,
                MEMBER => members.push((Member::read(from)?, from.one(code::AGE)?)),
                REFUSED => {
                    let [cause, count] = halves(from.wide(code::REFUSED)?);
                    refused.push((cause, count));
                }
                NOTE if notes.len() < NOTES => {
                    let bytes = from.bytes(NOTE_BYTES)?;
                    notes.push(String::from_utf8_lossy(&bytes).into_owned());
                }
                _ => {}
            }
        }
        if members.len().max(refused.len()) > MOST {
            return Err(BodyError::Count(code::SECTION));
        }
        Ok(Self {
            leader: leader.ok_or(BodyError::Missing(code::SECTION))?,
            topology,
            desired,
            members,
            refused,
            notes,
        })
    }
}

/// Writes the sections that both a [`State`] and a [`Status`] have.
fn write_shared(to: &mut List, stands: Option<&(Revision, Box<Topology>)>, desired: &DesiredState) {
    if let Some((revision, topology)) = stands {
        topology::write(to.put(code::SECTION, TOPOLOGY), *revision, topology);
    }
    to.put(code::SECTION, DESIRED);
    desired::write_all(to, desired);
}

fn read_topology(from: Fields<'_>) -> Result<(Revision, Box<Topology>), BodyError> {
    let (revision, topology) = topology::read(from)?;
    Ok((revision, Box::new(topology)))
}

/// The sections of a list, each with its number and its AVPs. Drops AVPs before the first one.
fn sections(from: Fields<'_>) -> impl Iterator<Item = (u32, Fields<'_>)> {
    let all = from.0.chunk_by(|_, next| next.code != code::SECTION);
    all.filter_map(|section| match section.split_first() {
        Some((first, rest)) if first.code == code::SECTION => Some((first.value, Fields(rest))),
        _ => None,
    })
}
