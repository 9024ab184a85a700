//! Picks the CPUs for the copies or threads that read a device, from sysfs and /proc.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use fanpcap_linux::process::cpu;

/// What `--cpus` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pinning {
    /// Chosen by [`choose`].
    Auto,
    /// These CPUs, in turn.
    List(Vec<usize>),
    /// The kernel decides.
    None,
}

impl Pinning {
    /// Reads `auto`, `none` or a list such as `0,2-3`.
    ///
    /// # Errors
    /// For anything else.
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

/// Why no CPUs are picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuError {
    /// The text is neither a word that [`Pinning::parse`] knows nor a list of CPUs.
    NoList,
    /// The list names a CPU that this process may not run on.
    NotAllowed {
        /// The CPU.
        cpu: usize,
        /// The CPUs that it may run on, as a list.
        allowed: String,
    },
    /// No CPU is known to pick from.
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
                f.write_str("--cpus auto: no CPUs are known; --cpus none goes without")
            }
        }
    }
}

impl Error for CpuError {}

/// The CPUs that were picked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// One for each copy or thread; `None` where the kernel decides.
    pub cpus: Vec<Option<usize>>,
    /// Text that says what was picked and why.
    pub why: String,
}

/// Picks CPUs out of `allowed` for `copies` copies or threads that capture on `device`. Reads files
/// below `root`, which is `/` except in tests.
///
/// # Errors
/// A list names a CPU that is not allowed, or none is.
pub fn choose(
    wanted: &Pinning,
    root: &Path,
    device: Option<&str>,
    allowed: &[usize],
    copies: usize,
) -> Result<Choice, CpuError> {
    match wanted {
        Pinning::None => Ok(Choice {
            cpus: vec![None; copies],
            why: "CPUs as the kernel likes".to_owned(),
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
            Ok(automatic(root, device, allowed, copies))
        }
    }
}

fn automatic(root: &Path, device: Option<&str>, allowed: &[usize], copies: usize) -> Choice {
    let nic = device.map(|device| Nic::read(root, device));
    let node = nic.as_ref().and_then(|nic| nic.node);
    let local = node.and_then(|node| node_cpus(root, node));
    let mut reasons = Vec::new();
    let mut candidates = allowed.to_vec();
    if let (Some(device), Some(node), Some(local)) = (device, node, local) {
        candidates.retain(|cpu| local.contains(cpu));
        if candidates.is_empty() {
            reasons.push(format!("none of {device}'s node {node} is allowed"));
            candidates = allowed.to_vec();
        } else {
            reasons.push(format!("{device} is on node {node}"));
        }
    }
    let receiving = nic.map(|nic| nic.receiving).unwrap_or_default();
    if let (Some(device), false) = (device, receiving.is_empty()) {
        let receiving: Vec<usize> = receiving.iter().copied().collect();
        let receivers = cpu::list_text(&receiving);
        let free: Vec<usize> = (candidates.iter().copied())
            .filter(|cpu| !receiving.contains(cpu))
            .collect();
        if free.is_empty() {
            reasons.push(format!("{device} is received on all of them"));
        } else {
            reasons.push(format!("{device} is received on {receivers}"));
            candidates = free;
        }
    }
    let (ordered, cores) = by_core(root, &candidates, &receiving);
    if cores < ordered.len() && copies <= cores {
        reasons.push("one thread of each core".to_owned());
    }
    let mut why = reasons.join(", ");
    if device.is_none() {
        why = "no device is known; --device names one".to_owned();
    } else if why.is_empty() {
        let device = device.unwrap_or_default();
        why = format!("{device} has no NUMA or IRQ information: using all CPUs");
    }
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

/// Orders CPUs: one hardware thread of each physical core first, and before the others those of
/// cores that receive nothing. Returns also the number of cores.
fn by_core(root: &Path, cpus: &[usize], receiving: &BTreeSet<usize>) -> (Vec<usize>, usize) {
    let mut known = BTreeSet::new();
    let mut ranked: Vec<(bool, bool, usize)> = Vec::new();
    for &cpu in cpus {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let siblings = read_list(&root.join(path)).unwrap_or_else(|| vec![cpu]);
        let is_second = !known.insert(siblings.iter().min().copied().unwrap_or(cpu));
        let beside = siblings.iter().any(|sibling| receiving.contains(sibling));
        ranked.push((is_second, beside, cpu));
    }
    ranked.sort_unstable();
    (ranked.iter().map(|rank| rank.2).collect(), known.len())
}

/// What sysfs says of a device.
#[derive(Debug, Default)]
struct Nic {
    node: Option<usize>,
    receiving: BTreeSet<usize>,
}

impl Nic {
    fn read(root: &Path, device: &str) -> Self {
        let mut nic = Self::default();
        nic.add(root, device, 0);
        nic
    }

    /// Adds a device and the devices below it: a VLAN, bond or bridge receives on the CPUs of its
    /// lower devices.
    fn add(&mut self, root: &Path, device: &str, depth: usize) {
        let of_device = root.join("sys/class/net").join(device);
        if device.contains('/') || depth > DEPTH_MAX {
            return;
        }
        let node = fs::read_to_string(of_device.join("device/numa_node"));
        // -1: the machine has no NUMA nodes.
        self.node = self.node.or_else(|| node.ok()?.trim().parse().ok());
        for interrupt in interrupts(root, &of_device, device) {
            let path = format!("proc/irq/{interrupt}/effective_affinity_list");
            self.receiving
                .extend(read_list(&root.join(path)).into_iter().flatten());
        }
        for queue in names(&of_device.join("queues")) {
            if queue.starts_with("rx-") {
                let path = of_device.join("queues").join(queue).join("rps_cpus");
                let mask = fs::read_to_string(path).unwrap_or_default();
                self.receiving.extend(cpu::mask(&mask).unwrap_or_default());
            }
        }
        for name in names(&of_device) {
            if let Some(lower) = name.strip_prefix("lower_") {
                self.add(root, lower, depth + 1);
            }
        }
    }
}

const DEPTH_MAX: usize = 4;

/// Interrupt numbers of a device: those of its bus, else those named after the device or its
/// driver.
fn interrupts(root: &Path, of_device: &Path, device: &str) -> Vec<usize> {
    // A virtio device stands below the PCI device that owns the interrupts.
    for place in ["device/msi_irqs", "device/../msi_irqs"] {
        let found = names(&of_device.join(place));
        let numbers: Vec<usize> = found.iter().filter_map(|name| name.parse().ok()).collect();
        if !numbers.is_empty() {
            return numbers;
        }
    }
    let target = fs::read_link(of_device.join("device")).unwrap_or_default();
    let bus = target
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let table = fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
    let wanted = |name: &str| {
        let mut parts =
            name.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '.' && sign != '_');
        name == device || parts.any(|part| part == device || Some(part) == bus.as_deref())
    };
    let number_of = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        rest.split_whitespace().any(wanted).then_some(number)
    };
    table.lines().filter_map(number_of).collect()
}

fn node_cpus(root: &Path, node: usize) -> Option<Vec<usize>> {
    read_list(&root.join(format!("sys/devices/system/node/node{node}/cpulist")))
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

fn read_list(path: &PathBuf) -> Option<Vec<usize>> {
    cpu::list(fs::read_to_string(path).ok()?.trim())
}

#[cfg(test)]
mod tests;
