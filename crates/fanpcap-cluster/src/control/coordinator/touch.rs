//! Whether a coordinator hears anybody, and whether nodes ask it though another one leads.

use std::time::Duration;

use super::super::endpoint::Incoming;
use super::super::envelope::Role;
use super::CoordinatorEnd;
use crate::identity::NodeId;
use crate::topology::NODES;

/// So many nodes that ask a standby are enough, however many nodes there are.
const MANY: usize = 3;

impl CoordinatorEnd {
    /// Notes that a node or a coordinator was heard.
    pub(super) fn note_heard(&mut self, now: Duration, incoming: &Incoming) {
        if let Incoming::New(peer, _) | Incoming::Challenged(peer) = incoming {
            if peer.role != Role::Operator {
                self.election.touched = now;
            }
        }
    }

    /// Whether anybody was heard a short time ago, or there is no other coordinator.
    pub(super) fn is_in_touch(&self, now: Duration) -> bool {
        self.settings.others.is_empty() || now < self.election.touched + self.settings.silence
    }

    /// If a leader stood still, nobody was silent meanwhile. Another one may lead by now, so it hears
    /// the nodes before it plans, as a new leader does.
    pub(super) fn excuse_pause(&mut self, now: Duration) {
        let pause = now.saturating_sub(self.ticked);
        self.ticked = now;
        if self.leads() && pause > self.settings.pulse * 2 {
            self.election.touched = now;
            self.members.excuse(pause);
            self.hear_again(now);
        }
    }

    /// Notes that a node asks this coordinator, which does not lead.
    pub(super) fn note_asked(&mut self, now: Duration, node: NodeId) {
        let silence = self.settings.silence;
        self.election
            .asked
            .retain(|_, [_, last]| now < *last + silence);
        if self.election.asked.len() < NODES {
            let times = self.election.asked.entry(node).or_insert([now, now]);
            times[1] = now;
        }
    }

    /// Whether so many nodes ask for so long that the leader does not serve the cluster, though it
    /// is heard.
    pub(super) fn is_asked_in_vain(&self, now: Duration) -> bool {
        let silence = self.settings.silence;
        let asks =
            |[first, last]: &&[Duration; 2]| *last >= *first + silence && now < *last + silence;
        let asking = self.election.asked.values().filter(asks).count();
        let all = self.knowledge.state.members.len();
        asking > 0 && (asking >= MANY || asking * 2 >= all)
    }
}
