//! Reads all facts of the machine. The facts that change are read twice, some time apart.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use fanpcap_config::device::ANY;
use fanpcap_group::guard;
use fanpcap_linux::netlink::link::{self, Link};
use fanpcap_linux::process::cpu;
use fanpcap_linux::wait::stop;
use fanpcap_nic::facts as nic;
use fanpcap_nic::plan::{self, Wishes};
use fanpcap_poller::kind::SourceKind;
use fanpcap_snapshot::{Snapshot, Socket, Source, device_of, shown_name};

use super::cluster::Cluster;
use super::device::{self, Device};
use super::engine::{self, Lack};
use super::finding::{Finding, in_order};
use super::groups::{self, Group};
use super::library::Library;
use super::limits::Limits;
use super::machine::{self, Machine};
use super::nic::Use;
use super::privileges::Privileges;
use super::settings::Settings;

/// All facts.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The device that the user named.
    pub(super) asked: Option<String>,
    /// The problems of applications that the user of --user starts; `None` without --user.
    pub(super) of_user: Option<Vec<Finding>>,
    /// The capture cluster that this machine is in.
    pub(super) cluster: Cluster,
    pub(super) machine: Machine,
    pub(super) privileges: Option<Privileges>,
    pub(super) limits: Limits,
    pub(super) settings: Settings,
    /// The devices that doctor examines.
    pub(super) devices: Vec<Device>,
    /// The members that wait for each device that is gone, or only for the named one.
    pub(super) waiting: BTreeMap<String, usize>,
    /// The groups of the network namespace.
    pub(super) groups: Vec<Group>,
    pub(super) library: Library,
    /// What the engine of the named device lacks.
    pub(super) lacks: Vec<Lack>,
    /// The CPUs that doctor may run on.
    pub(super) cpus: Vec<usize>,
    /// The kernel's version.
    pub(super) kernel: (u32, u32),
    /// The interrupts that the options of irqbalance(1) ban; `None` if no irqbalance runs.
    pub(super) irqbalance: Option<Vec<u32>>,
}

/// One reading of the facts that change.
struct Look {
    links: Vec<Link>,
    snapshot: Snapshot,
    overruns: u64,
}

impl Look {
    fn take(source: &mut Source) -> Result<Self> {
        Ok(Self {
            links: link::links().context("listing devices")?,
            snapshot: source.take()?,
            overruns: machine::overruns(Path::new("/")),
        })
    }
}

/// Reads the facts twice, `between` apart, for one device or for all devices that have packet
/// sockets. `program` is the value of --program.
///
/// # Errors
/// The device does not exist; the kernel does not list devices or packet sockets.
pub(super) fn read(
    asked: Option<&str>,
    program: Option<&Path>,
    between: Duration,
) -> Result<Facts> {
    // The groups of all devices are examined.
    let mut source = Source::new(None)?;
    let before = Look::take(&mut source)?;
    check_exists(asked, &before)?;
    stop::wait(between).context("waiting")?;
    let now = Look::take(&mut source)?;
    check_exists(asked, &now)?;
    let root = Path::new("/");
    let index = |name: &str| match name {
        ANY => Some(0),
        name => (now.links.iter().find(|it| it.name == name)).map(|it| it.index),
    };
    let awaited: Vec<String> = now.snapshot.waiting.keys().cloned().collect();
    let mut waiting = now.snapshot.waiting.clone();
    waiting.retain(|name, _| asked.is_none_or(|asked| device_of(asked) == name));
    let settings = Settings::read(asked, &awaited, index);
    // A default engine applies to every device.
    let unserved = settings.unserved.iter().filter(|_| asked.is_some());
    let lacks = unserved.flat_map(|(engine, it)| engine::lacks(*engine, it, &now.links, root));
    let lacks = lacks.collect();
    let library = Library::read(program, &now.snapshot, &settings.wanted);
    let mut groups = groups::groups(&before.snapshot, &now.snapshot);
    for group in &mut groups {
        group.holder = guard::holder(group.ifindex, group.number);
    }
    let kernel = nic::kernel();
    Ok(Facts {
        asked: asked.map(str::to_owned),
        of_user: None,
        cluster: Cluster::default(),
        machine: Machine::read(root, before.overruns),
        privileges: Some(Privileges::read(root)),
        limits: Limits::read(root, kernel),
        devices: devices(asked, &before, &now, &settings, &groups),
        waiting,
        settings,
        groups,
        library,
        lacks,
        cpus: cpu::cpus().unwrap_or_default(),
        kernel,
        irqbalance: nic::irqbalance().map(|pid| banned(root, pid)),
    })
}

/// Fails if the named device does not exist. If members wait for this device, doctor reports them.
fn check_exists(asked: Option<&str>, look: &Look) -> Result<()> {
    let asked = asked.filter(|name| !is_no_interface(name));
    let is_awaited = asked.is_some_and(|it| look.snapshot.waiting.contains_key(device_of(it)));
    // Whether a device has its poller is a question of the settings.
    match Source::new(asked.map(device_of)) {
        Err(error) if !is_awaited => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Whether the name has an engine whose devices are no network interfaces.
pub(crate) fn is_no_interface(name: &str) -> bool {
    let engine = name.split_once(':').map(|(engine, _)| engine);
    let kind = engine.and_then(SourceKind::named);
    kind.is_some_and(|kind| !kind.has_interface())
}

/// The named device, or else the devices with packet sockets.
fn devices(
    asked: Option<&str>,
    before: &Look,
    now: &Look,
    settings: &Settings,
    groups: &[Group],
) -> Vec<Device> {
    let used: BTreeSet<u32> = now.snapshot.sockets.iter().map(|it| it.ifindex).collect();
    let is_looked_at = |link: &&Link| match asked {
        Some(name) => link.name == device_of(name),
        None => used.contains(&link.index),
    };
    let of = |link: &Link| {
        let earlier = before.links.iter().find(|it| it.index == link.index);
        let earlier = earlier.unwrap_or(link);
        let mut device = Device::read(link, earlier, &now.links);
        let wanted = asked.and(Some(&settings.wanted)).into_iter().flatten();
        let is_wanted = wanted.into_iter().any(|it| it.ifindex == link.index);
        let has_several = |it: &Group| it.ifindex == link.index && it.members.len() > 1;
        device.is_shared = is_wanted || groups.iter().any(has_several);
        let is_named = |all: &[String]| all.contains(&link.name);
        let here = || (now.snapshot.sockets.iter()).filter(|it| it.ifindex == link.index);
        let mut on_xdp = settings.on_xdp.iter();
        device.is_on_engine =
            on_xdp.any(|it| it.0 == link.name) || here().any(Socket::is_on_engine);
        device.captures_sent = is_named(&settings.sent) || here().any(|it| it.captures_sent);
        let mut seen = now.snapshot.devices.iter();
        let is_stolen = |it: &fanpcap_snapshot::Device| it.stolen_from_host.is_some();
        device.is_stolen = seen.any(|it| it.ifindex == link.index && is_stolen(it));
        device
    };
    now.links.iter().filter(is_looked_at).map(of).collect()
}

/// The interrupts that the options of this irqbalance(1) process ban.
fn banned(root: &Path, pid: u32) -> Vec<u32> {
    let line = fs::read_to_string(root.join(format!("proc/{pid}/cmdline"))).unwrap_or_default();
    let mut words = line.split('\0');
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        let number = match word {
            "--banirq" | "-i" => words.next(),
            _ => word
                .strip_prefix("--banirq=")
                .or_else(|| word.strip_prefix("-i")),
        };
        found.extend(number.and_then(|it| it.parse::<u32>().ok()));
    }
    found
}

impl Facts {
    /// The problems, worst first.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let caller = self.of_user.clone();
        // A poller that is missing can be started only when its engine has what it needs.
        let mut all: Vec<Finding> = self.lacks.iter().map(Lack::finding).collect();
        all.extend(caller.unwrap_or_else(|| self.findings_of_caller()));
        all.extend(self.library.findings_of_others());
        let waiting = self.waiting.iter();
        all.extend(waiting.map(|(device, &members)| device::gone(device, members)));
        for device in &self.devices {
            all.extend(device.findings());
            all.extend(self.findings_of_driver(device));
        }
        let groups = self.groups.iter().filter(|it| self.is_looked_at(it));
        all.extend(groups.flat_map(|it| it.findings(&self.cpus, self.receiving(it.ifindex))));
        all.extend(self.machine.findings());
        all.extend(self.cluster.findings.iter().cloned());
        in_order(all)
    }

    /// The problems of applications that the caller starts.
    pub(super) fn findings_of_caller(&self) -> Vec<Finding> {
        let Settings { wanted, on_xdp, .. } = &self.settings;
        let mut all = self.settings.findings();
        let wants_xdp = !on_xdp.is_empty();
        let needs = self.settings.needs();
        all.extend(self.privileges.and_then(|it| it.findings(needs)));
        all.extend(self.limits.findings(wants_xdp));
        let needs_library = wants_xdp || needs.library || needs.nothing || !wanted.is_empty();
        all.extend(self.library.findings(needs_library));
        // A default group applies to every device, so the groups of the settings are checked only
        // if the user named a device.
        let meant = wanted.iter().filter(|_| self.asked.is_some());
        all.extend(meant.flat_map(|it| it.findings(&self.groups)));
        in_order(all)
    }

    /// The CPUs that `fanpcap tune` made receive for this device.
    fn receiving(&self, ifindex: u32) -> &[usize] {
        let device = self.devices.iter().find(|it| it.link.index == ifindex);
        device.map_or(&[], |it| &it.nic.facts.placed)
    }

    fn findings_of_driver(&self, device: &Device) -> Vec<Finding> {
        let groups = self
            .groups
            .iter()
            .filter(|it| it.ifindex == device.link.index);
        let groups: Vec<&Group> = groups.collect();
        let of_device = |it: &(String, String)| it.0 == device.link.name;
        device.nic.findings(&Use {
            link: &device.link,
            peer: device.peer.as_ref(),
            groups: &groups,
            is_on_xdp: self.settings.on_xdp.iter().any(of_device),
            may_steal: self.settings.stolen.contains(&device.link.name),
            is_stolen: device.is_stolen,
            captures_sent: device.captures_sent,
            kernel: self.kernel,
            irqbalance: self.irqbalance.as_deref(),
            cpus: &self.cpus,
        })
    }

    /// What the named device lacks for a group, and what `fanpcap tune` would change on it, if
    /// no group uses the device and the settings name none. Findings judge only the present use.
    pub(super) fn for_a_group(&self) -> Option<String> {
        let name = self.asked.as_ref()?;
        let name = shown_name(name);
        let device = self.devices.iter().find(|it| it.link.name == name)?;
        let is_used = self.groups.iter().any(|it| self.is_looked_at(it));
        let mut wanted = self.settings.wanted.iter();
        if is_used || wanted.any(|it| it.ifindex == device.link.index) {
            return None;
        }
        let wishes = Wishes {
            on_engine: device.is_on_engine,
            ..Wishes::default()
        };
        let steps = plan::plan(&device.nic.facts, wishes).ok()?.steps;
        let word = device.word();
        let tune = match steps.len() {
            0 => None,
            1 => Some("one setting".to_owned()),
            count => Some(format!("{count} settings")),
        };
        let tune = tune.map(|it| format!("'fanpcap tune {word}' would change {it}"));
        let lacks = device
            .with_a_group()
            .map(|it| format!("{}  [{}]", it.what, it.name));
        let all: Vec<String> = lacks.into_iter().chain(tune).collect();
        (!all.is_empty())
            .then(|| format!("No group uses {name}. With a group: {}.", all.join("; ")))
    }

    /// What doctor examined, in words. `user` is the value of --user.
    pub(super) fn looked_at(&self, user: Option<&str>) -> String {
        let names = self.devices.iter().map(|it| it.link.name.as_str());
        let asked = self.asked.as_deref();
        let names: Vec<&str> = names
            .chain(asked.filter(|it| is_no_interface(it)))
            .collect();
        let rest = match user {
            None => "settings, library, privileges, this machine".to_owned(),
            Some(name) => {
                format!("this machine; settings, library, privileges and limits as user {name}")
            }
        };
        if names.is_empty() {
            return match &self.asked {
                Some(name) => format!("{rest}; there is no device {name}"),
                None => {
                    format!("{rest}; no device has packet sockets: name a device to examine it")
                }
            };
        }
        let groups = self.groups.iter().filter(|it| self.is_looked_at(it));
        let (mut count, mut members) = (0, 0);
        for group in groups {
            count += 1;
            members += group.members.len();
        }
        let devices = names.join(", ");
        format!("{devices} (groups: {count}, members: {members}), {rest}")
    }

    fn is_looked_at(&self, group: &Group) -> bool {
        self.asked
            .as_deref()
            .map(shown_name)
            .is_none_or(|asked| group.device == asked || device_of(&group.device) == asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_user_s_doctor_looked_at_is_said() {
        let mut facts = Facts::default();
        let as_user = "settings, library, privileges and limits as user ada";
        let none = format!("this machine; {as_user}; no device ");
        assert!(facts.looked_at(Some("ada")).starts_with(&none));
        facts.asked = Some("eth9".to_owned());
        assert!(facts.looked_at(None).ends_with("; there is no device eth9"));
        facts.asked = Some("dpdk:net_null0".to_owned());
        let one = "dpdk:net_null0 (groups: 0, members: 0), settings";
        assert!(facts.looked_at(None).starts_with(one));
        facts.asked = Some("xdp:eth0".to_owned());
        facts.devices.push(Device::default());
        facts.devices[0].link.name = "eth0".to_owned();
        let one = format!("eth0 (groups: 0, members: 0), this machine; {as_user}");
        assert_eq!(facts.looked_at(Some("ada")), one);
        assert!(facts.looked_at(None).ends_with("privileges, this machine"));
    }

    #[test]
    fn only_devices_of_dpdk_are_no_interfaces() {
        assert!(is_no_interface("dpdk:net_null0") && is_no_interface("dpdk:0000:3b:00.0"));
        for name in ["dpdk", "eth0", "packet:eth0", "xdp:eth0", "nflog:5"] {
            assert!(!is_no_interface(name), "{name}");
        }
    }

    #[test]
    fn what_irqbalances_options_ban_is_read() {
        let scratch = fanpcap_testkit::Scratch::new().unwrap();
        fs::create_dir_all(scratch.file("proc/7")).unwrap();
        let line =
            "irqbalance\0--foreground\0--banirq=24\0--banirq\x0025\0-i\x0026\0-i27\0--banirq=x\0";
        fs::write(scratch.file("proc/7/cmdline"), line).unwrap();
        assert_eq!(banned(&scratch.file(""), 7), [24, 25, 26, 27]);
        assert!(banned(&scratch.file(""), 8).is_empty());
    }
}
