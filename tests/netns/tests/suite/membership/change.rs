//! A change between two phases, and the allowed effects on flows.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::load::{FLOWS, print};
use super::recorder::End;
use super::story::Story;
use super::table::BUCKETS;

/// A change of the group.
pub(super) struct Change {
    pub(super) what: String,
    /// Number of the phase after the change.
    pub(super) phase: usize,
    /// The only member whose flows may move.
    pub(super) member: Option<usize>,
    /// Buckets that moved.
    pub(super) buckets: usize,
    /// The successor of `member`, if a successor joined.
    pub(super) successor: Option<usize>,
    /// Whether flows keep their member when their bucket moves.
    pub(super) is_sticky: bool,
    /// The way in which `member` ended, and the time of its end, in microseconds since 1970. `None`
    /// if it did not end.
    pub(super) end: Option<(End, u64)>,
    /// The longest allowed time from the end of `member` until another member records the first
    /// packet of its flows.
    pub(super) served_within: Duration,
}

/// The usual value of `served_within`. A surviving member needs only milliseconds.
pub(super) const SERVED_WITHIN: Duration = Duration::from_secs(3);

impl Change {
    /// Prints the change and its effects on flows.
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

    /// Checks that only flows of `member` have moved, and that not more flows have moved than the
    /// number of moved buckets implies.
    pub(super) fn check(&self, story: &Story) -> Result<()> {
        let what = &self.what;
        let moved = story.moved(self.phase, self.member);
        ensure!(moved.of_others == 0, "{what}: {moved:?}");
        ensure!(moved.flows == moved.concerned, "{what}: {moved:?}");
        if self.is_sticky {
            // A newcomer moves no flow. A member that leaves may still have flows of buckets that
            // already belonged to another member.
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
        // If another process holds the member's descriptors, the group needs longer to notice that
        // nobody reads the member's packets. So the time is not checked for [`End::Held`].
        if self.end.is_some_and(|(how, _)| how != End::Held) {
            let (first, _) = self.served(story).context("no member serves its flows")?;
            ensure!(first < self.served_within, "{what}: served after {first:?}");
        }
        Ok(())
    }

    /// The largest number of flows that the number of moved buckets implies: the mean and three
    /// standard deviations, because flows are spread over buckets by chance.
    fn most(&self) -> f64 {
        let share = self.buckets as f64 / BUCKETS as f64;
        let flows = f64::from(FLOWS);
        flows * share + 3.0 * (flows * share * (1.0 - share)).sqrt()
    }

    /// The packet that the member may have been handling when it was killed.
    pub(super) fn in_hand(&self, story: &Story) -> Option<u32> {
        match self.end? {
            (End::Leaves | End::LeavesMuch, _) => None,
            (End::Killed | End::HangsFirst | End::Held, _) => {
                story.in_hand(self.phase.checked_sub(1)?, self.member?)
            }
        }
    }

    /// Two times of the ended member's flows: from the member's end until another member recorded
    /// their first packet, and the longest delay of their packets at other members.
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
