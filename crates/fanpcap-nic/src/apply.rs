//! Makes a plan's changes one after another, and checks that the device then has the new values.

use crate::device::Device;
use crate::error::DeviceError;
use crate::interrupts;
use crate::journal::{Journal, Wish};
use crate::knob::{Knob, Knobs};
use crate::plan::{Plan, Step, Target};
use crate::settings::Settings;
use fanpcap_linux::process::cpu;

/// A step that was attempted.
#[derive(Debug)]
pub struct Tried<'a> {
    /// The step.
    pub step: &'a Step,
    /// The result.
    pub result: Result<Verdict, DeviceError>,
}

/// Result of a step that did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The step set the value, and a read has returned it.
    Holds,
    /// The device had the value already.
    Held,
    /// The value is set, but until the next interrupt the controller still delivers to these CPUs.
    AtNextInterrupt(String),
}

/// Makes a plan's changes. If a step fails, the steps after it are still attempted.
pub fn apply<'a>(
    device: &Device,
    journal: &mut Journal,
    wish: Wish<'_>,
    plan: &'a Plan,
) -> Vec<Tried<'a>> {
    let mut step = |step: &'a Step| Tried {
        step,
        result: one(device, journal, wish, step),
    };
    plan.steps.iter().map(&mut step).collect()
}

fn one(
    device: &Device,
    journal: &mut Journal,
    wish: Wish<'_>,
    step: &Step,
) -> Result<Verdict, DeviceError> {
    let settings = Settings(device);
    let mut has_changed = false;
    let knobs = knobs(device, &step.target)?;
    for knob in &knobs {
        has_changed |= journal.set(&settings, wish, knob, &step.value)?;
    }
    if !has_changed {
        return Ok(Verdict::Held);
    }
    let pending = knobs
        .iter()
        .find_map(|knob| effective_elsewhere(knob, &step.value));
    Ok(pending.map_or(Verdict::Holds, Verdict::AtNextInterrupt))
}

/// The settings that a step changes. A channel may have two interrupts.
fn knobs(device: &Device, target: &Target) -> Result<Vec<Knob>, DeviceError> {
    match target {
        Target::Knob(knob) => Ok(vec![knob.clone()]),
        Target::Channel(channel) => {
            let found = interrupts::of_channel(device, *channel)?;
            Ok(found.iter().map(|it| Knob::Irq(it.number)).collect())
        }
    }
}

/// The CPUs to which an interrupt is delivered now. `None` if all of them were requested.
fn effective_elsewhere(knob: &Knob, asked: &str) -> Option<String> {
    let Knob::Irq(number) = knob else {
        return None;
    };
    let asked = cpu::list(asked)?;
    let effective = interrupts::affinity(*number).ok()?.effective;
    let is_elsewhere = effective.iter().any(|cpu| !asked.contains(cpu));
    is_elsewhere.then(|| cpu::list_text(&effective))
}

/// The settings that no longer have the value of their change in the journal, each with the
/// device's present value.
pub fn changed_since(device: &Device, journal: &Journal) -> Vec<(Knob, String)> {
    let settings = Settings(device);
    let differs = |change: &crate::journal::entry::Change| {
        let is = settings.read(&change.knob).ok()?;
        (is != change.new).then(|| (change.knob.clone(), is))
    };
    journal.changes().iter().filter_map(differs).collect()
}
