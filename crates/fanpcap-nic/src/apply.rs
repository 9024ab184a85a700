//! Makes a plan's changes one after another, and looks whether they hold.

use crate::device::Device;
use crate::interrupts;
use crate::journal::{Journal, SetError, Wish};
use crate::knob::{Knob, KnobError, Knobs};
use crate::plan::{Plan, Step, Target};
use crate::settings::Settings;
use fanpcap_linux::process::cpu;

/// A step that was tried.
#[derive(Debug)]
pub struct Tried<'a> {
    /// The step.
    pub step: &'a Step,
    /// What came of it.
    pub result: Result<Verdict, SetError>,
}

/// What came of a step that was not refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The device has the value, as read back.
    Holds,
    /// The device had the value already.
    Held,
    /// The controller still delivers to these CPUs, until the next interrupt.
    AtNextInterrupt(String),
}

/// Makes a plan's changes. A step that is refused does not keep the others from being tried.
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
) -> Result<Verdict, SetError> {
    let settings = Settings(device);
    let mut has_changed = false;
    let knobs = knobs(device, &step.target).map_err(SetError::Knob)?;
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

/// The settings that a step is about. A channel may have two interrupts.
fn knobs(device: &Device, target: &Target) -> Result<Vec<Knob>, KnobError> {
    match target {
        Target::Knob(knob) => Ok(vec![knob.clone()]),
        Target::Channel(channel) => {
            let found = interrupts::of_channel(device, *channel)?;
            Ok(found.iter().map(|it| Knob::Irq(it.number)).collect())
        }
    }
}

/// The CPUs that an interrupt goes to, if it does not go to those that were asked for.
fn effective_elsewhere(knob: &Knob, asked: &str) -> Option<String> {
    let Knob::Irq(number) = knob else {
        return None;
    };
    let asked = cpu::list(asked)?;
    let effective = interrupts::affinity(*number).ok()?.effective;
    let is_elsewhere = effective.iter().any(|cpu| !asked.contains(cpu));
    is_elsewhere.then(|| cpu::list_text(&effective))
}

/// Looks whether the changes that the journal has still hold: each with the value that the device
/// has now, if that is another one.
pub fn changed_since(device: &Device, journal: &Journal) -> Vec<(Knob, String)> {
    let settings = Settings(device);
    let differs = |change: &crate::journal::entry::Change| {
        let is = settings.read(&change.knob).ok()?;
        (is != change.new).then(|| (change.knob.clone(), is))
    };
    journal.changes().iter().filter_map(differs).collect()
}
