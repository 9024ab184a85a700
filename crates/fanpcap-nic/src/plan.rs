//! Computes the changes that make a device capture well, with a reason for each change. [`plan`]
//! depends only on its arguments, and changes nothing.

mod cores;
mod rules;
pub mod text;
#[cfg(test)]
mod tests;

use crate::facts::Facts;
use crate::knob::Knob;
use cores::Cores;
use std::fmt;

/// The user's requests, which have precedence over the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The number of receive queues.
    pub queues: Option<u32>,
    /// Whether threads poll the queues (threaded NAPI), even if interrupts could be placed.
    pub threads: bool,
    /// Whether the device only captures, even if the host has an address on the device.
    pub monitor: bool,
    /// Whether an engine takes the device's packets for all its members, before packet steering
    /// could move them.
    pub on_engine: bool,
    /// Whether to make a plan even if the device carries the default route.
    pub force: bool,
}

/// The changes to a device, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The CPUs that receive, one for each queue.
    pub receive: Vec<usize>,
    /// The CPUs for applications that capture, best first.
    pub applications: Vec<usize>,
    /// The changes.
    pub steps: Vec<Step>,
    /// Remarks for the user that belong to no step.
    pub notes: Vec<String>,
}

/// A change and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The changed setting.
    pub target: Target,
    /// The present value; `None` if the setting exists only after an earlier step.
    pub now: Option<String>,
    /// The value to set.
    pub value: String,
    /// The reason for the change.
    pub reason: String,
}

/// The setting that a step changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A setting.
    Knob(Knob),
    /// The CPUs of the interrupts that the channel has when the step is made.
    Channel(u32),
}

/// The reason why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The device carries the default route.
    DefaultRoute,
    /// The user asked for more queues than the device can have.
    TooMany {
        /// The requested number.
        asked: u32,
        /// The device's limit.
        most: u32,
    },
    /// This process may run on none of the known CPUs.
    NoCpu,
}

/// The changes that would make a device capture well.
///
/// # Errors
/// [`Refusal`].
pub fn plan(facts: &Facts, wishes: Wishes) -> Result<Plan, Refusal> {
    if facts.has_default_route && !wishes.force {
        return Err(Refusal::DefaultRoute);
    }
    let mut notes = Vec::new();
    let mut cores = Cores::of(facts, &mut notes).ok_or(Refusal::NoCpu)?;
    let queues = cores.queues(facts, wishes, &mut notes)?;
    let mut plan = Plan {
        receive: cores.receive(queues),
        applications: cores.applications(queues, &mut notes),
        steps: Vec::new(),
        notes,
    };
    rules::add(facts, wishes, &mut plan);
    Ok(plan)
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Knob(knob) => knob.fmt(f),
            Self::Channel(channel) => write!(f, "irq of channel {channel}"),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DefaultRoute => f.write_str(
                "it carries the default route, and a change could cut this machine off; --force \
                 changes it all the same",
            ),
            Self::TooMany { asked, most } => {
                write!(f, "{asked} receive queues, but it can have 1 to {most}")
            }
            Self::NoCpu => f.write_str("no CPU is known that this process may use"),
        }
    }
}

impl std::error::Error for Refusal {}
