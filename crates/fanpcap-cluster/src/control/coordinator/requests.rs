//! What the operator's commands ask of a coordinator.

use std::net::SocketAddr;
use std::time::Duration;

use super::super::body::{Body, Member, Status, TooManyWishes, Wish};
use super::super::endpoint::Cause;
use super::super::envelope::Peer;
use super::CoordinatorEnd;
use crate::coordination::Refusal;

impl CoordinatorEnd {
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "what this role takes from nobody is dropped"
    )]
    pub(super) fn hear_operator(&mut self, now: Duration, from: (SocketAddr, Peer), body: Body) {
        if !self.leads() {
            self.point_on(from);
            return;
        }
        match body {
            Body::Wish(wish) => self.hear_wish(from, wish),
            Body::Query => {
                if let Some(status) = self.status(now) {
                    self.transfers = self.transfers.wrapping_add(1);
                    self.say(from, &Body::Status(Box::new(status)), self.transfers);
                }
            }
            _ => {}
        }
    }

    fn hear_wish(&mut self, from: (SocketAddr, Peer), wish: Wish) {
        let reply = match wish.grant(&mut self.state.wishes) {
            Ok(is_new) => {
                if is_new {
                    self.changed();
                    self.synchronise_all();
                }
                Body::Acknowledge(u64::from(self.state.number))
            }
            Err(TooManyWishes) => Body::Refuse(wish.node(), Refusal::Full),
        };
        self.say(from, &reply, 0);
    }

    /// Stores the notes for the operator, which are sent with the status.
    pub fn set_notes(&mut self, notes: Vec<String>) {
        self.notes = notes;
    }

    /// How the cluster is; `None` if another coordinator leads.
    pub fn status(&self, now: Duration) -> Option<Status> {
        let member = |one: &super::Presence| -> (Member, u32) {
            let age = now.saturating_sub(one.heard).as_millis();
            (one.member, u32::try_from(age).unwrap_or(u32::MAX))
        };
        let count = |cause: Cause| u32::try_from(self.refused(cause)).unwrap_or(u32::MAX);
        let refused = Cause::ALL
            .into_iter()
            .map(|cause| (cause as u32, count(cause)));
        Some(Status {
            leader: self.known.filter(|_| self.leads())?,
            topology: self.state.topology.clone(),
            wishes: self.state.wishes.clone(),
            members: self.members.values().map(member).collect(),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            notes: self.notes.clone(),
        })
    }
}
