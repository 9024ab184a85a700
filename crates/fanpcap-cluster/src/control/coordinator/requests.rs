//! Answers the requests of the operator's commands.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::body::{Body, OperatorChange, Status, TooManyChanges};
use super::super::envelope::Peer;
use super::CoordinatorEnd;
use crate::coordination::Refusal;

impl CoordinatorEnd {
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "this role drops all other messages"
    )]
    pub(super) fn hear_operator(&mut self, now: Duration, from: (SocketAddr, Peer), body: Body) {
        if !self.leads() {
            self.point_on(from);
            return;
        }
        match body {
            Body::OperatorChange(change) => self.hear_change(from, change),
            Body::Query => {
                if let Some(status) = self.status(now) {
                    let transfers = self.knowledge.transfers.wrapping_add(1);
                    self.knowledge.transfers = transfers;
                    self.say(from, &Body::Status(Box::new(status)), transfers);
                }
            }
            _ => {}
        }
    }

    fn hear_change(&mut self, from: (SocketAddr, Peer), change: OperatorChange) {
        let reply = match change.apply(&mut self.knowledge.state.desired) {
            Ok(is_new) => {
                if is_new {
                    self.knowledge.count_change();
                    self.synchronise_all();
                }
                Body::Acknowledge(u64::from(self.knowledge.state.number))
            }
            Err(TooManyChanges) => Body::Refuse(change.node(), Refusal::Full),
        };
        self.say(from, &reply, 0);
    }

    /// Stores the notes for the operator. They are sent with the status.
    pub fn set_notes(&mut self, notes: Vec<String>) {
        self.notes = notes;
    }

    /// The cluster's status; `None` if another coordinator leads.
    pub fn status(&self, now: Duration) -> Option<Status> {
        let refused = self.endpoint.all_refused();
        let refused =
            refused.map(|(cause, count)| (cause, u32::try_from(count).unwrap_or(u32::MAX)));
        Some(Status {
            leader: self.election.known.filter(|_| self.leads())?,
            topology: self.knowledge.state.topology.clone(),
            desired: self.knowledge.state.desired.clone(),
            members: self.members.ages(now),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            notes: self.notes.clone(),
        })
    }
}
