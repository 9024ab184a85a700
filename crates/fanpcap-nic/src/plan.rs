//! Computes the steps from the facts, with a reason for each step. A pure function.

mod cores;
mod rules;
pub mod text;
#[cfg(test)]
mod tests;

use crate::facts::Facts;
use crate::knob::Knob;
use cores::Cores;
use std::fmt;

/// What the user asks for beyond the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// The number of receive queues.
    pub queues: Option<u32>,
    /// Threads poll the queues (threaded NAPI), even if interrupts could be placed.
    pub threads: bool,
    /// The device only captures, even if the host has an address on the device.
    pub monitor: bool,
    /// Also plan for the device that carries the default route.
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
    /// What else the user should know.
    pub notes: Vec<String>,
}

/// A change and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The changed setting.
    pub target: Target,
    /// The present value; `None` if the setting exists only after the step before.
    pub now: Option<String>,
    /// The value to set.
    pub value: String,
    /// Why.
    pub reason: String,
}

/// What a step changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A setting.
    Knob(Knob),
    /// The CPUs of the interrupts that the channel has when the step is made.
    Channel(u32),
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The device carries the default route.
    DefaultRoute,
    /// More queues than the device can have.
    TooMany {
        /// The requested number.
        asked: u32,
        /// The device's limit.
        most: u32,
    },
    /// No CPU is known that this process may run on.
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
