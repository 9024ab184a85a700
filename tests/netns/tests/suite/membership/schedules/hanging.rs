//! Members that hang in a schedule for longer than the time of silence, and go on.

use anyhow::{Context, Result};
use fanpcap_testkit::await_for::{LIMIT, await_for};

use super::super::load::Load;
use super::super::records::now_us;
use super::plan::Action;
use super::{DEVICE, Schedule};

/// A member that hangs.
pub(super) struct Hung {
    /// The weight that it will have when it goes on.
    weight: Option<u16>,
    /// When it began to hang, in microseconds since 1970.
    since_us: u64,
}

impl Schedule<'_> {
    /// Stops the members of a step that shall hang, and waits until other members have their
    /// shares. The load pauses meanwhile, because a ring has no room for the packets of such a long
    /// time.
    pub(super) fn hang(&mut self, actions: &[Action], load: &mut Load) -> Result<()> {
        let members: Vec<usize> = actions.iter().filter_map(hanging).collect();
        if members.is_empty() {
            return Ok(());
        }
        for member in members {
            let since_us = now_us();
            self.members[member].signal("STOP")?;
            let weight = self.weights[member].take();
            self.hung.insert(member, Hung { weight, since_us });
        }
        // Each of the members then has unread packets.
        load.await_each_flow()?;
        load.pause()?;
        let weights = &self.weights;
        let taken = await_for(
            "others to have the shares of those that hang",
            LIMIT,
            || Ok(self.group.has_shares(weights)?.then_some(())),
        );
        taken.with_context(|| format!("{} of {weights:?}", self.group.seen()))?;
        load.go_on(DEVICE)
    }

    /// A member that hangs goes on.
    pub(super) fn go_on(&mut self, member: usize) -> Result<()> {
        let hung = self.hung.remove(&member).context("it does not hang")?;
        self.weights[member] = hung.weight;
        self.members[member].signal("CONT")
    }

    /// When the first of the members that end in a step began to hang, in microseconds since 1970.
    pub(super) fn hung_since(&self, actions: &[Action]) -> Option<u64> {
        let hung = |action: &Action| {
            let Action::End { member, .. } = action else {
                return None;
            };
            self.hung.get(member).map(|it| it.since_us)
        };
        actions.iter().filter_map(hung).min()
    }
}

fn hanging(action: &Action) -> Option<usize> {
    let Action::Hang { member } = *action else {
        return None;
    };
    Some(member)
}
