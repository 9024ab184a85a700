//! A leader whose nodes follow a newer topology than it knows: its file is lost, or an old copy.
//!
//! It asks the nodes for that topology. An agent that was started again captures by the table in
//! its kernel and has no topology to show. If all agents were, nobody has it any more. Then the
//! leader plans from what it knows: its revisions are greater, so all nodes follow. What moves,
//! moves without a union.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::super::term::Term;
use super::{CoordinatorEnd, Stance};
use crate::coordination::Refusal;
use crate::identity::{NodeId, Revision};

/// What is wrong in the eyes of a leader, for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// Nodes capture by a newer topology than this coordinator knows. The leader makes no plan
    /// until one of them has shown it, or `limit` seconds have passed.
    Behind {
        /// The newest topology that nodes capture by.
        revision: Revision,
        /// The nodes that capture by newer topologies than the coordinator knows.
        nodes: Vec<NodeId>,
        /// After how many seconds the coordinator plans without it.
        limit: u64,
    },
    /// No node could show this topology. The coordinator plans without it.
    Forgotten(Revision),
    /// A message names a term that no coordinator can have, or one did so recently: within the time
    /// after which a silent node is offline.
    Ahead,
    /// A machine is refused.
    Refused {
        /// Its node id.
        node: NodeId,
        /// Where its messages come from.
        address: SocketAddr,
        /// Why.
        why: Refusal,
    },
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Behind {
                revision,
                nodes,
                limit,
            } => {
                let nodes: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
                write!(
                    f,
                    "nodes {} capture by topology {revision}, which this coordinator does not \
                     know: nothing changes until one of them shows it, or {limit} s have passed",
                    nodes.join(", ")
                )
            }
            Self::Forgotten(revision) => write!(
                f,
                "no node could show topology {revision}: the coordinator plans without it"
            ),
            Self::Ahead => f.write_str(
                "control messages tell of terms that are years ahead, and are refused: is a \
                 coordinator's clock wrong?",
            ),
            Self::Refused { node, address, why } => {
                write!(
                    f,
                    "the machine at {address}, node {node}, is refused: {why}"
                )
            }
        }
    }
}

impl CoordinatorEnd {
    /// The newest revision that the coordinator knows, or plans without.
    fn known_revision(&self) -> Option<Revision> {
        self.revision().max(self.forgotten)
    }

    /// Whether a live node follows a newer topology than this coordinator knows.
    pub(super) fn is_behind(&self) -> bool {
        let known = self.known_revision();
        self.members.values().any(|one| one.member.follows > known)
    }

    /// Notes since when nodes follow a topology that nobody shows, and gives it up in the end.
    pub(super) fn look_behind(&mut self, now: Duration) {
        let known = self.known_revision();
        let follows = self.members.values().map(|one| one.member.follows);
        let newest = follows.max().flatten().filter(|of| Some(*of) > known);
        let Some(newest) = newest else {
            self.unknown = None;
            return;
        };
        let (_, since) = *self.unknown.get_or_insert((newest, now));
        self.unknown = Some((newest, since));
        // A revision of a greater term than the own would be refused by nodes that follow it.
        let leads = matches!(&self.stance, Stance::Leading { leader, .. }
            if leader.term >= Term::of(newest));
        if leads && now >= since + self.settings.recall {
            self.forgotten = Some(newest);
            self.unknown = None;
        }
    }

    /// What is wrong now. A standby has nothing to say.
    pub fn troubles(&self) -> Vec<Trouble> {
        if !self.leads() {
            return Vec::new();
        }
        let known = self.known_revision();
        let behind = self.unknown.map(|(revision, _)| {
            let members = self.members.values().map(|one| one.member);
            let newer = members.filter(|member| member.follows > known);
            Trouble::Behind {
                revision,
                nodes: newer.map(|member| member.announcement.node).collect(),
                limit: self.settings.recall.as_secs(),
            }
        });
        let forgotten = self.forgotten.filter(|of| Some(*of) > self.revision());
        let forgotten = forgotten.map(Trouble::Forgotten);
        let refused = self.refusals.iter();
        let refused =
            refused.map(|(&(node, address), &(why, _))| Trouble::Refused { node, address, why });
        let ahead = self.ahead.map(|_| Trouble::Ahead);
        let own = behind.into_iter().chain(forgotten).chain(ahead);
        own.chain(refused).collect()
    }
}
