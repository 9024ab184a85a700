//! The facts about a device and its machine that a plan needs. Reading the facts changes nothing.

pub mod text;

use crate::channels::Channels;
use crate::device::Device;
use crate::interrupts::{self, Affinity, Interrupt};
use crate::journal;
use crate::journal::entry::Change;
use crate::knob::{FLOWS, Knob, Knobs, SINGLE, Setting};
use crate::machine::{self, Cpu};
use crate::napi;
use crate::settings::Settings;
use fanpcap_linux::ethtool::Rings;
use fanpcap_linux::netlink::{address, link, netdev, route};
use fanpcap_linux::process::{cpu, stat};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The facts that a plan needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The device's name.
    pub device: String,
    /// The driver's name.
    pub driver: String,
    /// The kernel's version, such as 6.18.
    pub kernel: (u32, u32),
    /// Whether the device is up.
    pub is_up: bool,
    /// Whether a default route leads through the device.
    pub has_default_route: bool,
    /// Whether the host has an address on the device. A port that only captures has no address.
    pub has_address: bool,
    /// The device's NUMA node.
    pub node: Option<usize>,
    /// Packets that the device dropped for lack of room.
    pub missed: u64,
    /// The values of the settings that the device has.
    pub values: BTreeMap<Knob, String>,
    /// Features that the driver can't turn on or off.
    pub fixed: Vec<String>,
    /// Numbers of channels.
    pub channels: Option<Channels>,
    /// Lengths of rings.
    pub rings: Option<Rings>,
    /// Interrupts and their CPUs.
    pub interrupts: Vec<(Interrupt, Affinity)>,
    /// The present number of NAPI instances; `None` if the kernel does not report it.
    pub napis: Option<usize>,
    /// The CPUs that are online.
    pub cpus: Vec<Cpu>,
    /// The CPUs that this process may run on (cpuset).
    pub allowed: Vec<usize>,
    /// CPUs that receive for other devices, according to the journals of those devices.
    pub taken: Vec<usize>,
    /// CPUs to which the queues of this device were moved until the user asks for the old values,
    /// according to its journal.
    pub placed: Vec<usize>,
    /// Whether the device has the channels that an earlier plan gave it until the user asks for
    /// the old number, according to its journal.
    pub has_planned_channels: bool,
    /// The process ID of irqbalance.
    pub irqbalance: Option<u32>,
}

/// Features that change what a capture sees, and what each feature does to a capture.
pub(crate) const OFFLOADS: [(&str, &str); 6] = [
    (
        "rx-lro",
        "the device merges segments before a capture sees them",
    ),
    (
        "rx-gro-hw",
        "the device merges segments before a capture sees them",
    ),
    (
        "rx-gro",
        "the kernel merges segments before a capture sees them",
    ),
    (
        "rx-gro-list",
        "the kernel chains segments before a capture sees them",
    ),
    (
        "rx-udp-gro-forwarding",
        "the kernel merges datagrams before a capture sees them",
    ),
    (
        "rx-vlan-hw-parse",
        "VLAN tags stay in the frames, as on the wire",
    ),
];

impl Facts {
    /// The facts of a device. Leaves out facts that can't be read.
    pub fn of(device: &Device) -> Self {
        let link = link::get(device.ifindex).unwrap_or_default();
        let interrupts = interrupts::of_device(device).unwrap_or_default();
        let features = device.ethtool.features().unwrap_or_default();
        let placed = |it: Interrupt| {
            let affinity = interrupts::affinity(it.number).unwrap_or_default();
            (it, affinity)
        };
        let values = values(device);
        let (own, others) = journal::all_changes()
            .unwrap_or_default()
            .into_iter()
            .partition::<Vec<_>, _>(|(ifindex, _)| *ifindex == device.ifindex);
        // What a capture has changed for itself is no plan.
        let own: Vec<_> = own.into_iter().filter(|(_, it)| it.stays).collect();
        let has_channels =
            |it: &Change| it.knob == Knob::Channels && values.get(&it.knob) == Some(&it.new);
        let is_fixed = |name: &str| features.iter().any(|it| it.name == name && it.is_fixed);
        Self {
            device: device.name.clone(),
            driver: device.driver.clone(),
            kernel: kernel(),
            is_up: link.flags & IFF_UP != 0,
            has_default_route: has_default_route(device),
            has_address: address::has_address(device.ifindex).unwrap_or(false),
            node: node(device),
            missed: link.counters.rx_missed,
            has_planned_channels: own.iter().any(|(_, it)| has_channels(it)),
            values,
            fixed: (OFFLOADS.iter())
                .filter(|(name, _)| is_fixed(name))
                .map(|(name, _)| (*name).to_owned())
                .collect(),
            channels: device.ethtool.channels().ok(),
            rings: device.ethtool.rings().ok(),
            interrupts: interrupts.into_iter().map(placed).collect(),
            napis: netdev::napis(device.ifindex).ok().map(|napis| napis.len()),
            cpus: machine::cpus(),
            allowed: cpu::cpus().unwrap_or_default(),
            taken: receiving(&others),
            placed: receiving(&own),
            irqbalance: irqbalance(),
        }
    }

    /// The value of a setting, if the device has it.
    pub fn value(&self, knob: impl Into<Knob>) -> Option<&str> {
        self.values.get(&knob.into()).map(String::as_str)
    }

    /// The number of queues that receive.
    pub fn rx_queues(&self) -> u32 {
        let channels = self.channels.map_or(0, |it| it.rx + it.combined);
        let queues = self
            .values
            .keys()
            .filter(|it| matches!(it, Knob::Setting(Setting::Rps(_))));
        let queues = u32::try_from(queues.count()).unwrap_or(u32::MAX);
        if channels > 0 {
            channels
        } else {
            queues.max(1)
        }
    }
}

fn values(device: &Device) -> BTreeMap<Knob, String> {
    let settings = Settings(device);
    let mut knobs = vec![Knob::Channels, Knob::Threaded];
    knobs.extend(OFFLOADS.map(|(name, _)| Setting::Feature(name.to_owned()).into()));
    knobs.extend(SINGLE.map(|(setting, _)| setting.into()));
    knobs.extend(FLOWS.map(|(flow, _)| Setting::FlowHash(flow).into()));
    knobs.extend(settings.of_queues());
    let threads = napi::threads(device).unwrap_or_default();
    knobs.extend(threads.into_iter().map(|(queue, _)| Knob::Napi(queue)));
    let value = |knob: Knob| settings.read(&knob).ok().map(|value| (knob, value));
    knobs.into_iter().filter_map(value).collect()
}

/// Whether a default route leads through the device, or through a device above it: a bridge, a
/// bond, a VLAN.
fn has_default_route(device: &Device) -> bool {
    let links = link::links().unwrap_or_default();
    let routes = route::default_devices().unwrap_or_default();
    let mut reached = routes.into_iter().map(|upper| link::below(upper, &links));
    reached.any(|below| below.contains(&device.ifindex))
}

/// The device's NUMA node. For a virtio device, sysfs has the node at the PCI device above it. On
/// machines without nodes, the kernel reports -1.
pub(crate) fn node(device: &Device) -> Option<usize> {
    let read = |path| device.read(path).ok()?.parse().ok();
    read("device/numa_node").or_else(|| read("device/../numa_node"))
}

/// The CPUs to which these changes moved interrupts, polling threads and packet steering.
fn receiving(changes: &[(u32, Change)]) -> Vec<usize> {
    let cpus = changes.iter().filter_map(|(_, change)| match change.knob {
        Knob::Irq(_) | Knob::Napi(_) | Knob::Setting(Setting::Rps(_)) => cpu::list(&change.new),
        Knob::Channels | Knob::Threaded | Knob::Setting(_) => None,
    });
    let cpus: BTreeSet<usize> = cpus.flatten().collect();
    cpus.into_iter().collect()
}

/// The process ID of irqbalance(1). The process must be root's, because any user can give a process
/// that name.
pub fn irqbalance() -> Option<u32> {
    let read = |pid, file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let is_it =
        |pid| read(pid, "comm").trim_end() == "irqbalance" && is_roots(&read(pid, "status"));
    let mut all = stat::all().into_iter();
    let found = all.find(|it| !it.has_ended() && is_it(it.pid));
    found.map(|it| it.pid)
}

/// Whether the effective user of a process is root, by its `/proc/PID/status`.
fn is_roots(status: &str) -> bool {
    let users = status.lines().find_map(|it| it.strip_prefix("Uid:"));
    users.and_then(|it| it.split_whitespace().nth(1)) == Some("0")
}

/// The kernel's version, such as 6.18; zeros if unknown.
pub fn kernel() -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|sign: char| !sign.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    (number().unwrap_or(0), number().unwrap_or(0))
}

const IFF_UP: u32 = 1;

#[cfg(test)]
mod tests {
    use super::is_roots;

    #[test]
    fn a_process_is_roots_by_its_effective_user() {
        assert!(is_roots(
            "Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t0\t0\t0\t0\n"
        ));
        assert!(!is_roots(
            "Name:\tx\nUid:\t0\t1000\t0\t0\nGid:\t0\t0\t0\t0\n"
        ));
        assert!(!is_roots(""));
    }
}
