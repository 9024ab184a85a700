//! Whether a coordinator hears nodes and other coordinators, and whether nodes ask a standby to
//! lead although another coordinator leads.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::body::Body;
use super::super::endpoint::Incoming;
use super::super::envelope::Role;
use super::CoordinatorEnd;
use super::election::ElectionRole;
use crate::identity::NodeId;
use crate::topology::NODES;

impl CoordinatorEnd {
    /// Notes that a message of a node or a coordinator has come.
    pub(super) fn note_heard(&mut self, now: Duration, incoming: &Incoming) {
        if let Incoming::New(peer, _) | Incoming::Challenged(peer) | Incoming::Unreadable(peer, _) =
            incoming
        {
            if peer.role != Role::Operator {
                self.election.touched = now;
            }
            if peer.role == Role::Node && !self.leads() {
                let silence = self.settings.silence;
                let heard = &mut self.election.heard;
                heard.retain(|_, at| now < *at + silence);
                if heard.len() < NODES {
                    heard.insert(NodeId(peer.id), now);
                }
            }
        }
    }

    /// Whether this coordinator has recently heard from a node or from another coordinator, or is
    /// the only coordinator.
    pub(super) fn is_in_touch(&self, now: Duration) -> bool {
        self.settings.others.is_empty() || now < self.election.touched + self.settings.silence
    }

    /// A pause of the leader's own process does not count as silence of the nodes. Another
    /// coordinator may lead by now, so the leader must hear nodes before it writes again.
    pub(super) fn excuse_pause(&mut self, now: Duration) {
        let pause = now.saturating_sub(self.ticked);
        self.ticked = now;
        if self.leads() && pause > self.settings.pulse * 2 {
            self.election.touched = now;
            self.members.excuse(pause);
            self.hear_again(now);
        }
    }

    /// Notes that a node asks to join, although this coordinator does not lead.
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

    /// The nodes that have asked this standby repeatedly for at least the time `long`.
    fn asking(&self, now: Duration, long: Duration) -> BTreeSet<NodeId> {
        let silence = self.settings.silence;
        let asks = |[first, last]: [Duration; 2]| last >= first + long && now < last + silence;
        let asked = self.election.asked.iter();
        asked
            .filter(|(_, times)| asks(**times))
            .map(|(node, _)| *node)
            .collect()
    }

    /// Whether a node has asked this standby repeatedly. If so, this standby asks all nodes and
    /// coordinators to answer.
    pub(super) fn is_asked(&self, now: Duration) -> bool {
        !self.asking(now, self.settings.pulse).is_empty()
    }

    /// Whether this standby would serve more nodes than the present leader does. This is so if the
    /// nodes that have asked this standby for a while outnumber the nodes that it does not hear. So
    /// the number of served nodes grows with each change of the leader, and two coordinators can't
    /// take turns in leading.
    pub(super) fn is_asked_in_vain(&self, now: Duration) -> bool {
        let silence = self.settings.silence;
        let asking = self.asking(now, silence);
        let is_heard = |node: &NodeId| {
            let heard = self.election.heard.get(node);
            asking.contains(node) || heard.is_some_and(|at| now < *at + silence)
        };
        let members = self.knowledge.state.members.iter();
        let members = members.map(|member| member.announcement.node);
        let unheard = members.filter(|node| !is_heard(node)).count();
        asking.len() > unheard && self.unreadable().is_none()
    }

    /// Whether requests of nodes made this coordinator a candidate, although it hears a leader.
    pub(super) fn is_asked_candidate(&self, now: Duration) -> bool {
        matches!(self.election.role, ElectionRole::Candidate { .. }) && self.is_asked_in_vain(now)
    }

    /// The time at which a standby asks the nodes and coordinators to answer. A standby asks twice
    /// before it becomes a candidate, because a node that no longer hears the leader first asks
    /// that leader.
    pub(super) fn question_at(&self, heard: Duration) -> Duration {
        (heard + self.settings.pulse * 3 / 2).max(self.election.pulse_at)
    }

    /// If no message has come since the last pulse, asks the nodes and the refused machines to
    /// answer. There may be no standby that answers pulses, and messages may be lost.
    pub(super) fn ask_nodes(&mut self, now: Duration) {
        let pulse = self.settings.pulse;
        let (touched, asked_at) = (self.election.touched, self.election.asked_at);
        let is_late = now >= (touched + pulse * 5 / 4).max(asked_at + pulse / 4);
        let Some(leader) = self.election.known.filter(|_| is_late) else {
            return;
        };
        self.election.asked_at = now;
        for place in self.members.all_addresses() {
            self.say(place, &Body::Announce(leader), 0);
        }
    }
}
