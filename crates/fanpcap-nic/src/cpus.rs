//! Picks the CPUs for the copies or threads that read a device. These CPUs are near the device, and
//! do not receive its packets.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;

use fanpcap_linux::process::cpu;

use crate::device::Device;
use crate::facts;
use crate::interrupts;
use crate::knob::{Knobs, Setting};
use crate::machine::{self, Cpu};
use crate::settings::Settings;

/// The value of the option `--cpus`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// CPUs that [`choose`] picks.
    Auto,
    /// The CPUs of this list, each for the next copy or thread in turn.
    List(Vec<usize>),
    /// No CPU is picked: the kernel decides where each copy or thread runs.
    None,
}

impl Pinning {
    /// Reads `auto`, `none` or a list such as `0,2-3`.
    ///
    /// # Errors
    /// The text is neither of the two words nor a list of CPUs.
    pub fn parse(text: &str) -> Result<Self, CpuError> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => {
                let cpus = cpu::list(text).filter(|cpus| !cpus.is_empty());
                cpus.map(Self::List).ok_or(CpuError::NoList)
            }
        }
    }
}

/// The reason why no CPUs were picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuError {
    /// The text is neither a word that [`Pinning::parse`] reads nor a list of CPUs.
    NoList,
    /// The list names a CPU that this process may not run on.
    NotAllowed {
        /// The CPU.
        cpu: usize,
        /// The CPUs that this process may run on, as a list.
        allowed: String,
    },
    /// There is no CPU to pick from.
    NoneKnown,
}

impl fmt::Display for CpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoList => f.write_str("write auto, none or a list of CPUs, such as 0,2-3"),
            Self::NotAllowed { cpu, allowed } => write!(
                f,
                "--cpus: this process may not run on CPU {cpu}, only on {allowed}"
            ),
            Self::NoneKnown => {
                f.write_str("--cpus auto: no CPUs are known; --cpus none lets the kernel choose")
            }
        }
    }
}

impl Error for CpuError {}

/// The CPUs that were picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The CPU of each copy or thread; `None` where the kernel decides.
    pub cpus: Vec<Option<usize>>,
    /// Text that says what was picked and why.
    pub why: String,
}

/// Picks CPUs out of `allowed` for `copies` copies or threads that capture on `device`.
///
/// # Errors
/// A list names a CPU that is not allowed, or no CPU is allowed.
pub fn choose(
    wanted: &Pinning,
    device: Option<&str>,
    allowed: &[usize],
    copies: usize,
) -> Result<Choice, CpuError> {
    match wanted {
        Pinning::None => Ok(Choice {
            cpus: vec![None; copies],
            why: "CPUs that the kernel chooses".to_owned(),
        }),
        Pinning::List(cpus) => {
            if let Some(&cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
                let allowed = cpu::list_text(allowed);
                return Err(CpuError::NotAllowed { cpu, allowed });
            }
            let shared = sharing(cpus.len(), copies);
            Ok(spread(cpus, copies, format!("as asked{shared}")))
        }
        Pinning::Auto => {
            if allowed.is_empty() {
                return Err(CpuError::NoneKnown);
            }
            let device = device.map(Reception::of);
            Ok(automatic(&machine::cpus(), device, allowed, copies))
        }
    }
}

fn automatic(
    machine: &[Cpu],
    device: Option<Reception>,
    allowed: &[usize],
    copies: usize,
) -> Choice {
    let Some(Reception { name, node, cpus }) = device else {
        let (ordered, _) = by_core(machine, allowed, &BTreeSet::new());
        let shared = sharing(ordered.len(), copies);
        let why = "no device is known; -i names one".to_owned();
        return spread(&ordered, copies, why + &shared);
    };
    let mut reasons = Vec::new();
    let mut candidates = allowed.to_vec();
    if let (Some(node), false) = (node, machine.is_empty()) {
        let is_local = |cpu: &usize| {
            let mut own = machine.iter().filter(|it| it.number == *cpu);
            own.any(|it| it.node == node)
        };
        candidates.retain(is_local);
        if candidates.is_empty() {
            reasons.push(format!("none of {name}'s node {node} is allowed"));
            candidates = allowed.to_vec();
        } else {
            reasons.push(format!("{name} is on node {node}"));
        }
    }
    if !cpus.is_empty() {
        let receivers: Vec<usize> = cpus.iter().copied().collect();
        let free: Vec<usize> = (candidates.iter().copied())
            .filter(|cpu| !cpus.contains(cpu))
            .collect();
        if free.is_empty() {
            reasons.push(format!("{name} is received on all of them"));
        } else {
            let receivers = cpu::list_text(&receivers);
            reasons.push(format!("{name} is received on {receivers}"));
            candidates = free;
        }
    }
    let (ordered, cores) = by_core(machine, &candidates, &cpus);
    if cores < ordered.len() && copies <= cores {
        reasons.push("one thread of each core".to_owned());
    }
    let why = match reasons.is_empty() {
        true => format!("{name} has no NUMA or IRQ information: using all CPUs"),
        false => reasons.join(", "),
    };
    let shared = sharing(ordered.len(), copies);
    spread(&ordered, copies, why + &shared)
}

fn spread(cpus: &[usize], copies: usize, why: String) -> Choice {
    let chosen: Vec<usize> = cpus.iter().copied().cycle().take(copies).collect();
    let names: Vec<String> = chosen.iter().map(usize::to_string).collect();
    Choice {
        why: format!("CPUs {} ({why})", names.join(", ")),
        cpus: chosen.into_iter().map(Some).collect(),
    }
}

fn sharing(cpus: usize, copies: usize) -> String {
    if cpus < copies {
        format!("; {cpus} for {copies}: they share")
    } else {
        String::new()
    }
}

/// Orders CPUs: first one hardware thread of each physical core, then the other hardware threads.
/// Within each of these two parts, the CPUs on cores that receive nothing come first. Also returns
/// the number of cores.
fn by_core(machine: &[Cpu], cpus: &[usize], receiving: &BTreeSet<usize>) -> (Vec<usize>, usize) {
    let core = |number: usize| {
        let cpu = machine.iter().find(|it| it.number == number);
        cpu.map_or(number, |it| it.core)
    };
    let busy: BTreeSet<usize> = receiving.iter().map(|&cpu| core(cpu)).collect();
    let mut known = BTreeSet::new();
    let mut ranked: Vec<(bool, bool, usize)> = Vec::new();
    for &cpu in cpus {
        let core = core(cpu);
        let is_second = !known.insert(core);
        ranked.push((is_second, busy.contains(&core), cpu));
    }
    ranked.sort_unstable();
    (ranked.iter().map(|rank| rank.2).collect(), known.len())
}

/// The NUMA node and the CPUs at which a device's packets arrive.
#[derive(Debug, Default)]
struct Reception {
    /// The device's name.
    name: String,
    /// The device's NUMA node.
    node: Option<usize>,
    /// The CPUs of its interrupts and of its packet steering (RPS).
    cpus: BTreeSet<usize>,
}

impl Reception {
    /// Reads the node and the CPUs of a device. Leaves out facts that can't be read.
    fn of(name: &str) -> Self {
        let mut found = Self {
            name: name.to_owned(),
            ..Self::default()
        };
        found.add(name, 0);
        found
    }

    /// Adds a device and the devices below it: a VLAN, bond or bridge receives on the CPUs of its
    /// lower devices.
    fn add(&mut self, name: &str, depth: usize) {
        let Some(device) = Device::open(name).ok().filter(|_| depth <= DEPTH_MAX) else {
            return;
        };
        self.node = self.node.or_else(|| facts::node(&device));
        for number in interrupts::numbers(&device) {
            let affinity = interrupts::affinity(number).unwrap_or_default();
            self.cpus.extend(affinity.effective);
        }
        let settings = Settings(&device);
        for queue in device.queues("rx-") {
            let steered = settings.read(&Setting::Rps(queue).into());
            let cpus = steered.ok().and_then(|steered| cpu::list(&steered));
            self.cpus.extend(cpus.into_iter().flatten());
        }
        for lower in lower_devices(&device) {
            self.add(&lower, depth + 1);
        }
    }
}

const DEPTH_MAX: usize = 4;

/// The names of the devices directly below a device (`lower_NAME`, the kernel's net/core/dev.c,
/// `netdev_adjacent_sysfs_add`).
fn lower_devices(device: &Device) -> Vec<String> {
    let lower = |name: String| name.strip_prefix("lower_").map(str::to_owned);
    let mut names: Vec<String> = device.names("").filter_map(lower).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests;
