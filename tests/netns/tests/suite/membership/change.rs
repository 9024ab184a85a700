//! What happened between two phases, and what it may do to flows.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::load::{FLOWS, print};
use super::recorder::End;
use super::story::Story;
use super::table::BUCKETS;

/// What happened.
pub(super) struct Change {
    pub(super) what: String,
    /// The phase after it.
    pub(super) phase: usize,
    /// The one member whose flows may move.
    pub(super) member: Option<usize>,
    /// Buckets that moved.
    pub(super) buckets: usize,
    /// The member that succeeds it.
    pub(super) successor: Option<usize>,
    /// Whether flows keep their member when their bucket moves.
    pub(super) is_sticky: bool,
    /// How the member ended, if it did, and when, in microseconds since 1970.
    pub(super) end: Option<(End, u64)>,
    /// How long its packets may wait for another member then.
    pub(super) served_within: Duration,
}

/// A survivor takes milliseconds.
pub(super) const SERVED_WITHIN: Duration = Duration::from_secs(3);

impl Change {
    /// Prints the figures.
    pub(super) fn tell(&self, story: &Story) {
        let moved = story.moved(self.phase, self.member);
        let percent = 100.0 * moved.flows as f64 / f64::from(FLOWS);
        let Self { what, buckets, .. } = self;
        print(&format!(
            "{what}: {buckets} buckets, {percent:.1} % of the flows moved"
        ));
        if let Some((first, longest)) = self.served(story) {
            print(&format!(
                "  its flows: the first packet at others after {first:?}, the latest {longest:?} late"
            ));
        }
    }

    /// Checks that no flow has moved but the one member's, and no more than the buckets tell.
    pub(super) fn check(&self, story: &Story) -> Result<()> {
        let what = &self.what;
        let moved = story.moved(self.phase, self.member);
        ensure!(moved.of_others == 0, "{what}: {moved:?}");
        ensure!(moved.flows == moved.concerned, "{what}: {moved:?}");
        if self.is_sticky {
            // Who comes moves none. A member that leaves may still have flows of buckets that
            // already belonged to another.
            let before = self.phase - 1;
            let had = self.member.map_or(0, |member| story.flows(before, member));
            ensure!(moved.flows == had, "{what}: {moved:?}, it had {had}");
        } else {
            let most = self.most();
            ensure!(moved.flows as f64 <= most, "{what}: {moved:?} over {most}");
        }
        if let Some(successor) = self.successor {
            let has = story.flows(self.phase, successor);
            ensure!(has == moved.flows, "{what}: {moved:?}, the successor {has}");
        }
        // It takes longer to notice that nobody reads what somebody has.
        if self.end.is_some_and(|(how, _)| how != End::Held) {
            let (first, _) = self.served(story).context("nobody serves its flows")?;
            ensure!(first < self.served_within, "{what}: served after {first:?}");
        }
        Ok(())
    }

    /// As many flows as the number of its buckets implies. Flows are spread over buckets by chance.
    fn most(&self) -> f64 {
        let share = self.buckets as f64 / BUCKETS as f64;
        let flows = f64::from(FLOWS);
        flows * share + 3.0 * (flows * share * (1.0 - share)).sqrt()
    }

    /// The packets that the member may have been handling when it was killed.
    pub(super) fn in_hand(&self, story: &Story) -> Option<u32> {
        match self.end? {
            (End::Leaves | End::LeavesMuch, _) => None,
            (End::Killed | End::HangsFirst | End::Held, _) => {
                story.in_hand(self.phase.checked_sub(1)?, self.member?)
            }
        }
    }

    /// How long after the member's end others had its first packet, and how late the latest of
    /// its packets was.
    fn served(&self, story: &Story) -> Option<(Duration, Duration)> {
        let before = self.phase.checked_sub(1)?;
        let (_, since_us) = self.end?;
        let (first, longest) = story.served(before, self.member?, since_us)?;
        Some((
            Duration::from_micros(first),
            Duration::from_micros(longest.into()),
        ))
    }
}
