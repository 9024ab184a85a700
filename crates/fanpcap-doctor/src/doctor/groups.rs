//! Finds problems in the devices' groups: members that do not read, that lose packets, that share a
//! CPU, or that do not belong together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fanpcap_config::device::ANY;
use fanpcap_linux::process::cpu;
use fanpcap_linux::process::stat::Stat;
use fanpcap_snapshot::{Device, Library, Snapshot, Socket};

use super::cpuset::Cpuset;
use super::finding::{Effect, Finding};

/// Facts of a group on a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) ifindex: u32,
    pub(super) device: String,
    pub(super) number: u16,
    /// The group's mode, as `fanpcap top` shows it.
    pub(super) mode: String,
    pub(super) members: Vec<Member>,
    /// The process that holds the group's lock.
    pub(super) holder: Option<Stat>,
}

/// A member of a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Member {
    /// The process; `None` if /proc does not show it to us.
    pub(super) pid: Option<u32>,
    pub(super) program: String,
    /// The member reads through our library.
    pub(super) is_ours: bool,
    /// The XDP engine fills the member's rings.
    pub(super) is_on_engine: bool,
    /// The library that the member's process has loaded; `None` if it is unknown.
    pub(super) library: Option<Library>,
    /// A signal or a debugger has stopped the member's process.
    pub(super) is_stopped: bool,
    /// Seconds since the application last looked for packets; `None` if unknown.
    pub(super) unread_seconds: Option<f64>,
    /// The application has never read the handle, and the handle's steered group has given the
    /// member no buckets.
    pub(super) has_no_share: bool,
    /// Packets that the member's ring dropped for lack of room between doctor's two readings.
    pub(super) dropped: u64,
    /// The CPUs that the member may run on.
    pub(super) cpus: Vec<usize>,
    /// The cpuset that restricts the member to some CPUs; `None` if no known cpuset does.
    pub(super) cpuset: Option<Cpuset>,
}

/// A member that has not looked for packets for more than this many seconds is reported as not
/// reading.
const SILENT_SECONDS: f64 = 10.0;

/// The groups of a snapshot. A group that only a founder keeps has no members. `before` is the
/// snapshot of doctor's first reading.
pub(super) fn groups(before: &Snapshot, now: &Snapshot) -> Vec<Group> {
    let mut groups: BTreeMap<(u32, u16), Group> = BTreeMap::new();
    for socket in now.sockets.iter().filter(|it| !it.is_placeholder) {
        let Some(group) = socket.of_group() else {
            continue;
        };
        let key = (socket.ifindex, group.number);
        let entry = groups.entry(key).or_insert_with(|| Group {
            ifindex: socket.ifindex,
            device: name(&now.devices, socket.ifindex),
            number: group.number,
            mode: group.mode.clone(),
            members: Vec::new(),
            holder: None,
        });
        if socket.group.is_none() {
            continue;
        }
        entry.mode.clone_from(&group.mode);
        let id = |it: &Socket| (it.inode, it.is_at_poller.then_some(it.ifindex));
        let same = before.sockets.iter().find(|it| id(it) == id(socket));
        entry.members.push(member(same, socket));
    }
    groups.into_values().collect()
}

fn name(devices: &[Device], ifindex: u32) -> String {
    let device = devices.iter().find(|it| it.ifindex == ifindex);
    device.map_or_else(|| ANY.to_owned(), |it| it.name.clone())
}

fn member(before: Option<&Socket>, now: &Socket) -> Member {
    let dropped = |socket: &Socket| socket.counts.map(|it| it.dropped);
    let grown = dropped(now).zip(before.and_then(dropped));
    let process = now.process.clone().unwrap_or_default();
    let cpus = process.affinity.as_deref().and_then(cpu::list);
    Member {
        pid: process.pid,
        program: process.program,
        is_ours: now.has_page,
        is_on_engine: now.is_on_engine(),
        library: process.library,
        is_stopped: process.is_stopped,
        unread_seconds: now.unread_seconds,
        has_no_share: now.is_never_read && now.place.is_some_and(|place| place.buckets == 0),
        dropped: grown.map_or(0, |(now, before)| now.saturating_sub(before)),
        cpus: cpus.unwrap_or_default(),
        cpuset: process.pid.and_then(|pid| Cpuset::of(Path::new("/"), pid)),
    }
}

impl Member {
    /// Whether the member's cpuset allows a CPU.
    pub(super) fn may_use(&self, cpu: usize) -> bool {
        let has = |cpuset: &Cpuset| cpuset.cpus.contains(&cpu);
        self.cpuset.as_ref().is_none_or(has)
    }

    /// The command that moves the member's process `pid` to these CPUs.
    pub(super) fn move_to(&self, cpus: &[usize], pid: u32) -> String {
        let bind = format!("taskset -acp {} {pid}", cpu::list_text(cpus));
        match &self.cpuset {
            // taskset(1) fails if the process may run on none of the CPUs.
            Some(cpuset) if !cpus.iter().any(|&cpu| self.may_use(cpu)) => {
                format!("{} && {bind}", cpuset.add(cpus))
            }
            _ => bind,
        }
    }
}

impl Group {
    /// The problems of the group. `machine` are the CPUs of the machine, and `receiving` those that
    /// `fanpcap tune` made receive for the group's device.
    pub(super) fn findings(&self, machine: &[usize], receiving: &[usize]) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        findings.extend(self.strangers());
        findings.extend(self.mixed());
        findings.extend(self.held());
        findings.extend(self.old_library());
        for member in &self.members {
            findings.extend(self.stopped(member).or_else(|| self.silent(member)));
            findings.extend(self.drops(member));
        }
        findings.extend(self.one_cpu(machine, receiving));
        findings.extend(self.cpusets(machine));
        findings
    }

    /// Whether the group has a mode of the kernel. Such a mode gives packets to all members,
    /// whether they read or not.
    fn is_kernels(&self) -> bool {
        let mode = self.mode.split(['+', ' ']).next().unwrap_or_default();
        ["hash", "lb", "rnd", "cpu", "rollover", "qm"].contains(&mode)
    }

    fn finding(&self, name: &'static str, effect: Effect, told: [String; 3]) -> Finding {
        let place = format!("{} group {}", self.device, self.number);
        Finding::new(name, effect, &place, told)
    }

    /// The programs' names, each with the process IDs of its members.
    fn programs<'a>(members: impl Iterator<Item = &'a Member>) -> BTreeMap<&'a str, Vec<u32>> {
        let mut programs: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for member in members.filter(|it| !it.program.is_empty()) {
            programs
                .entry(&member.program)
                .or_default()
                .extend(member.pid);
        }
        programs
    }

    fn strangers(&self) -> Option<Finding> {
        let (ours, others): (Vec<&Member>, Vec<&Member>) =
            self.members.iter().partition(|it| it.is_ours);
        if ours.is_empty() || others.is_empty() {
            return None;
        }
        let programs = Self::programs(others.iter().copied());
        let told = [
            format!(
                "{} of its {} members do not read by fanpcap's library: {}",
                others.len(),
                self.members.len(),
                listed(&programs)
            ),
            "they get a part of the packets, and the group's own applications miss this part"
                .to_owned(),
            format!(
                "export PCAP_GROUP={}    # and start the group's applications again",
                self.other()
            ),
        ];
        Some(self.finding("strangers-in-group", Effect::Loses, told))
    }

    fn mixed(&self) -> Option<Finding> {
        let programs = Self::programs(self.members.iter().filter(|it| it.is_ours));
        if programs.len() < 2 {
            return None;
        }
        let told = [
            format!("different programs share it: {}", listed(&programs)),
            "each program misses the packets that the others get; a program that needs all packets \
             must have a group of its own"
                .to_owned(),
            format!("export PCAP_GROUP={}    # and start one of the programs again", self.other()),
        ];
        Some(self.finding("mixed-programs", Effect::Loses, told))
    }

    /// The number that a fix proposes for another group: the next number.
    fn other(&self) -> u16 {
        self.number.checked_add(1).unwrap_or(0)
    }

    fn held(&self) -> Option<Finding> {
        let holder = self.holder.filter(Stat::is_stopped)?;
        let pid = holder.pid;
        let told = [
            format!("process {pid} is stopped while it changes the group"),
            "until it continues, no member can join, and no member takes over from a member that ends".to_owned(),
            format!("kill -CONT {pid}"),
        ];
        Some(self.finding("group-held", Effect::Loses, told))
    }

    /// The finding that members have loaded another build of the library than applications that
    /// are started now.
    fn old_library(&self) -> Option<Finding> {
        let is_old = |member: &&Member| {
            let mut library = member.library.iter();
            library.any(|it| it.is_replaced || it.version != env!("CARGO_PKG_VERSION"))
        };
        let old: Vec<&Member> = self.members.iter().filter(is_old).collect();
        let library = old.first()?.library.as_ref()?;
        let since = match library.is_replaced {
            true => format!("{} was replaced after they had loaded it", library.path),
            false => format!("this command has version {}", env!("CARGO_PKG_VERSION")),
        };
        let told = [
            format!(
                "{} of its {} members run an old library, version {}: {}; {since}",
                old.len(),
                self.members.len(),
                library.version,
                listed(&Self::programs(old.iter().copied()))
            ),
            "members of different versions may refuse each other, and corrections of the new version have no effect on these members".to_owned(),
            "fanpcap group    # which members; then start all members of the group again, together"
                .to_owned(),
        ];
        Some(self.finding("old-library", Effect::Distorts, told))
    }

    fn stopped(&self, member: &Member) -> Option<Finding> {
        let pid = member.pid.filter(|_| member.is_stopped)?;
        let told = [
            format!(
                "its member {} (pid {pid}) is stopped by a signal or a debugger",
                member.program
            ),
            self.why_silent(),
            format!("kill -CONT {pid}"),
        ];
        Some(self.finding("member-stopped", self.effect_of_silence(), told))
    }

    /// The finding on a member that hangs, or on a handle that gets a share but is never read. A
    /// handle that never had a share loses no packets: its application may read another handle.
    fn silent(&self, member: &Member) -> Option<Finding> {
        if member.has_no_share {
            return None;
        }
        let seconds = member.unread_seconds.filter(|&it| it > SILENT_SECONDS)?;
        let pid = member.pid?;
        let told = [
            format!(
                "its member {} (pid {pid}) has not looked for packets for {seconds:.0} seconds",
                member.program
            ),
            self.why_silent(),
            format!("kill {pid}    # or make the application call pcap_dispatch() again"),
        ];
        Some(self.finding("member-silent", self.effect_of_silence(), told))
    }

    fn effect_of_silence(&self) -> Effect {
        match self.is_kernels() {
            true => Effect::Loses,
            false => Effect::Costs,
        }
    }

    fn why_silent(&self) -> String {
        match self.is_kernels() {
            true => format!("under {} it still gets its part of the packets, and these packets are not read", self.mode),
            false => "after ten seconds the other members get its flows; until then, packets that don't fit into its ring are lost"
                .to_owned(),
        }
    }

    fn drops(&self, member: &Member) -> Option<Finding> {
        if member.dropped == 0 {
            return None;
        }
        let who = member
            .pid
            .map_or(String::new(), |pid| format!(" (pid {pid})"));
        let told = [
            format!(
                "the ring of its member {}{who} had no room for {} packets while doctor looked",
                member.program, member.dropped
            ),
            "the member reads more slowly than its packets come: use more members, or do less work for each packet".to_owned(),
            format!(
                "fanpcap run -n {} -- {} ...    # more members; against bursts a larger ring helps: \
                 'ring@{} = SIZE' in /etc/pcap.conf",
                self.members.len() + 1,
                super::finding::word(&member.program),
                self.device
            ),
        ];
        Some(self.finding("ring-full", Effect::Loses, told))
    }

    /// The finding that members take turns on one CPU, although another is free. A CPU that only
    /// receives is not free: a member there would slow down all members.
    fn one_cpu(&self, machine: &[usize], receiving: &[usize]) -> Option<Finding> {
        let mut bound: BTreeMap<usize, Vec<&Member>> = BTreeMap::new();
        for member in &self.members {
            if let (Some(_), [cpu]) = (member.pid, member.cpus.as_slice()) {
                bound.entry(*cpu).or_default().push(member);
            }
        }
        // Each thread of a process is bound separately, but /proc/PID shows only the first thread's
        // CPUs. So a process with several members counts once.
        bound
            .values_mut()
            .for_each(|all| all.dedup_by_key(|it| it.pid));
        let used: BTreeSet<usize> = bound.keys().copied().collect();
        let (cpu, all) = bound.iter().find(|(_, all)| all.len() > 1)?;
        let last = all.last()?;
        let is_as_good = |it: &usize| !receiving.contains(it) || receiving.contains(cpu);
        let is_free = |it: &&usize| !used.contains(*it) && last.may_use(**it) && is_as_good(it);
        let free = machine.iter().find(is_free)?;
        let told = [
            format!("{} of its members are bound to CPU {cpu}", all.len()),
            "they take turns, and together are only as fast as one of them".to_owned(),
            last.move_to(&[*free], last.pid?),
        ];
        Some(self.finding("one-cpu-for-members", Effect::Costs, told))
    }

    /// The finding that a cpuset has fewer CPUs than members, although the machine has more CPUs.
    fn cpusets(&self, machine: &[usize]) -> Option<Finding> {
        let mut all: BTreeMap<&str, (&Cpuset, BTreeSet<u32>)> = BTreeMap::new();
        for member in &self.members {
            if let (Some(cpuset), Some(pid)) = (&member.cpuset, member.pid) {
                let entry = all.entry(&cpuset.name).or_insert((cpuset, BTreeSet::new()));
                entry.1.insert(pid);
            }
        }
        let is_narrow = |(cpuset, pids): &&(&Cpuset, BTreeSet<u32>)| {
            let cpus = cpuset.cpus.len();
            cpus < pids.len() && cpus < machine.len()
        };
        let (cpuset, pids) = all.values().find(is_narrow)?;
        let others = machine.iter().filter(|cpu| !cpuset.cpus.contains(cpu));
        let missing = pids.len() - cpuset.cpus.len();
        let cpus: Vec<usize> = others.take(missing).copied().collect();
        let told = [
            format!(
                "{} of its members are in the cpuset {}, which allows only CPU {}",
                pids.len(),
                cpuset.name,
                cpu::list_text(&cpuset.cpus)
            ),
            "they take turns, and can't use the other CPUs of the machine".to_owned(),
            cpuset.add(&cpus),
        ];
        Some(self.finding("narrow-cpuset", Effect::Costs, told))
    }
}

/// The programs in words: `2 tcpdump (pid 7, 8), 1 p0f (pid 9)`.
fn listed(programs: &BTreeMap<&str, Vec<u32>>) -> String {
    let of = |(program, pids): (&&str, &Vec<u32>)| {
        let pids: Vec<String> = pids.iter().take(PIDS_SHOWN).map(u32::to_string).collect();
        match pids.is_empty() {
            true => (*program).to_owned(),
            false => format!("{program} (pid {})", pids.join(", ")),
        }
    };
    match programs.is_empty() {
        true => "processes that are not shown to this user".to_owned(),
        false => programs.iter().map(of).collect::<Vec<_>>().join(", "),
    }
}

const PIDS_SHOWN: usize = 4;

#[cfg(test)]
mod tests;
