//! The allowed effects of a step on packets and flows, and a check that it had no other effects.

use std::ops::Range;

use anyhow::{Result, ensure};

use super::super::recorder::End;
use super::super::story::Story;
use super::plan::Action;

/// The longest time that a packet may have been unread in a ring when a step began, in
/// microseconds.
const UNREAD_US: u64 = 300_000;

/// One flow is expected for each bucket. By chance a few buckets may have this many flows each.
pub(super) const FLOWS_OF_BUCKET: usize = 8;

/// A step that has been made.
pub(super) struct Step {
    pub(super) actions: Vec<Action>,
    /// The time from the step's beginning until the group was stable again, in microseconds since
    /// 1970.
    pub(super) time: Range<u64>,
    /// Members that joined.
    pub(super) came: Range<usize>,
    /// Number of buckets that have moved between members that the step does not concern. If weights
    /// differ, rounding may cause such moves.
    pub(super) rounded: usize,
    /// Whether flows stay at their member when their bucket moves.
    pub(super) is_sticky: bool,
    /// When the first of the members that ended in this step had begun to hang, in microseconds
    /// since 1970.
    pub(super) hung_us: Option<u64>,
}

impl Step {
    /// The number of killed members. Each may have been handling one packet.
    pub(super) fn killed(&self) -> usize {
        let is_kill = |it: &&Action| {
            let Action::End { how, .. } = it else {
                return false;
            };
            matches!(how, End::Killed | End::HangsFirst)
        };
        self.actions.iter().filter(is_kill).count()
    }

    /// Whether the step may move flows from one of these members to the other.
    pub(super) fn concerns(&self, from: usize, to: usize) -> bool {
        let comes = |member| member == to && !self.is_sticky;
        let is_one = |it: &Action| match *it {
            Action::End { member, .. } | Action::Hang { member } => member == from,
            Action::Weigh { member, weight: 0 } => member == from,
            Action::Weigh { member, .. } => comes(member) || (member == from && !self.is_sticky),
            Action::GoOn { member } => comes(member),
            Action::Join { .. }
            | Action::Stop { .. }
            | Action::Freeze { .. }
            | Action::Filter { .. } => false,
        };
        self.came.clone().any(comes) || self.actions.iter().any(is_one)
    }

    /// The reason why packets may come after later packets of their flow; `None` if they must not.
    pub(super) fn late(&self) -> Option<&'static str> {
        let count = |is_it: fn(&Action) -> bool| self.actions.iter().filter(|it| is_it(it)).count();
        let ends = count(|it| matches!(it, Action::End { .. }));
        let weighs = count(|it| matches!(it, Action::Weigh { .. }));
        let stops = count(|it| matches!(it, Action::Stop { .. } | Action::Freeze { .. }));
        let hangs = count(|it| matches!(it, Action::Hang { .. } | Action::GoOn { .. }));
        match (ends, weighs, stops) {
            (0, _, _) => None,
            _ if self.hung_us.is_some() => {
                Some("a member that had no share any more ended with packets in its ring")
            }
            _ if hangs > 0 => Some("a member lost or got its share at the same time"),
            (1, 0, 0) => None,
            (1, 0, _) if self.came.is_empty() => None,
            (1, 0, _) => Some("older members did not check for packets within a tenth of a second"),
            (1, _, _) => Some("another member had the buckets before the ring was read"),
            _ => Some("the member that reads a ring may have ended too"),
        }
    }

    /// Whether a packet that arrived at this time may come late.
    pub(super) fn excuses(&self, arrived_us: u64) -> bool {
        let since = self.hung_us.unwrap_or(self.time.start) - UNREAD_US;
        let time = since..self.time.end;
        self.late().is_some() && time.contains(&arrived_us)
    }

    /// Checks that from the previous phase to this one only flows of members that the step concerns
    /// have moved.
    pub(super) fn check(&self, story: &Story, phase: usize) -> Result<()> {
        let others = story
            .moves(phase)
            .filter(|(from, to)| !self.concerns(*from, *to));
        let (others, actions) = (others.count(), &self.actions);
        let most = self.rounded * FLOWS_OF_BUCKET;
        ensure!(
            others <= most,
            "{others} flows of other members moved by {actions:?}"
        );
        Ok(())
    }
}
