//! Finds problems of a device's driver. Examines what the driver does to frames, how it spreads
//! them over CPUs, and whether that suits the members that read.

use fanpcap_linux::ethtool::{self, Feature};
use fanpcap_linux::netlink::host_use;
use fanpcap_linux::netlink::link::Link;
use fanpcap_linux::process::cpu;
use fanpcap_nic::facts::Facts;
use fanpcap_nic::knob::{Knob, Setting};
use fanpcap_nic::plan::{self, Step, Target, Wishes};
use fanpcap_nic::settings;
use fanpcap_nic::{device, napi};

use super::finding::{Effect, Finding, word};
use super::groups::{Group, Member};
use super::long_packets;

/// Facts of a device and its driver. Facts that the driver does not report are empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Nic {
    /// The facts that `fanpcap tune` plans from.
    pub(super) facts: Facts,
    /// The features of a veth's peer.
    peers: Vec<Feature>,
    /// The CPUs of each thread that polls the device.
    pollers: Vec<Vec<usize>>,
    /// Why the host or a container may need the device's packets.
    host_use: Option<&'static str>,
    /// The command that makes the host send packets that fit in one frame through the device.
    cut: Option<String>,
}

/// How a device is used, and the machine that it is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use<'a> {
    pub(super) link: &'a Link,
    /// A veth's peer.
    pub(super) peer: Option<&'a Link>,
    /// The groups on the device.
    pub(super) groups: &'a [&'a Group],
    /// The settings ask for the XDP engine.
    pub(super) is_on_xdp: bool,
    /// By the settings, the engine steals the packets from the host, unless the host uses the
    /// device.
    pub(super) may_steal: bool,
    /// A capture steals the packets from the host now.
    pub(super) is_stolen: bool,
    /// The XDP engine captures the packets that the host sends, or would by the settings.
    pub(super) captures_sent: bool,
    /// The kernel's version.
    pub(super) kernel: (u32, u32),
    /// The interrupts that the options of irqbalance(1) ban; `None` if no irqbalance runs.
    pub(super) irqbalance: Option<&'a [u32]>,
    /// The CPUs of the machine.
    pub(super) cpus: &'a [usize],
}

impl Use<'_> {
    /// Whether the kernel is older than this version.
    fn is_before(&self, version: (u32, u32)) -> bool {
        self.kernel != (0, 0) && self.kernel < version
    }

    /// Whether all captures read the XDP engine, or would by the settings.
    fn is_read_on_xdp(&self) -> bool {
        let mut members = self.groups.iter().flat_map(|it| &it.members).peekable();
        self.is_on_xdp || members.peek().is_some() && members.all(|it| it.is_on_engine)
    }
}

impl Nic {
    /// Asks the drivers of this link's device and of `peer`. `all` are the devices of the
    /// namespace.
    pub(super) fn read(link: &Link, peer: Option<&Link>, all: &[Link]) -> Self {
        let features = |index| ethtool::Device::find(index).and_then(|it| it.features());
        let peer = peer.and_then(|it| features(it.index).ok());
        let mut nic = Self {
            peers: peer.unwrap_or_default(),
            host_use: host_use::of(link.index).unwrap_or_default(),
            cut: long_packets::cut(link.index, all),
            ..Self::default()
        };
        let device = device::Device::open(&link.name).ok();
        // The name may now belong to another device.
        if let Some(device) = device.filter(|it| it.ifindex == link.index) {
            nic.facts = Facts::of(&device);
            let threads = napi::threads(&device).unwrap_or_default().into_iter();
            nic.pollers = threads
                .filter_map(|(_, thread)| cpu::affinity(thread).ok())
                .collect();
        }
        nic
    }

    /// The command that gives the device more room for packets; `None` if the device has the
    /// maximum already.
    pub(super) fn more_room(&self, device: &str) -> Option<String> {
        let ring = self.facts.rings.filter(|it| it.rx < it.most[0]);
        let ring = ring.map(|it| format!("ethtool -G {device} rx {}", it.most[0]));
        let combined = self
            .facts
            .channels
            .filter(|it| it.combined > 0 && it.combined < it.most[3]);
        let alone = ring.or_else(|| {
            combined.map(|it| format!("ethtool -L {device} combined {}", it.combined + 1))
        });
        let is_more = |knob: &Knob| matches!(knob, Knob::Setting(Setting::Rings));
        alone.map(|alone| self.tune_or(device, is_more, alone))
    }

    /// The `fanpcap tune` command if its plan changes a setting for which `mends` is true.
    /// Otherwise `alone`, the command that changes only this setting. `device` is a shell word.
    fn tune_or(&self, device: &str, mends: impl Fn(&Knob) -> bool, alone: String) -> String {
        self.tune(device, mends, &alone).unwrap_or(alone)
    }

    /// As [`Self::tune_or`]; `None` if the plan does not change such a setting.
    pub(super) fn tune(
        &self,
        device: &str,
        mends: impl Fn(&Knob) -> bool,
        alone: &str,
    ) -> Option<String> {
        let is_it = |step: &Step| matches!(&step.target, Target::Knob(knob) if mends(knob));
        // The device of the default route has no plan, so `is_mended` is false for it.
        let is_mended = |monitor: bool| {
            let wishes = Wishes {
                monitor,
                ..Wishes::default()
            };
            let plan = plan::plan(&self.facts, wishes);
            plan.is_ok_and(|plan| plan.steps.iter().any(is_it))
        };
        // Adds --monitor only if the finding needs this option, which turns off offloads that a
        // device of the host uses.
        let monitor = match () {
            () if is_mended(false) => "",
            () if is_mended(true) => " --monitor",
            () => return None,
        };
        Some(format!(
            "fanpcap tune {device} --apply{monitor}    # this alone: {alone}"
        ))
    }

    /// Whether a feature is on.
    fn is_on(&self, name: &str) -> bool {
        self.facts.value(feature(name)) == Some("on")
    }

    /// The CPUs of the device's NUMA node.
    fn node(&self) -> Vec<usize> {
        let cpus = self.facts.cpus.iter();
        let is_near = |node: usize| self.facts.node == Some(node);
        cpus.filter(|it| is_near(it.node))
            .map(|it| it.number)
            .collect()
    }

    /// The problems of the driver.
    pub(super) fn findings(&self, used: &Use<'_>) -> Vec<Finding> {
        let members = || used.groups.iter().flat_map(|it| &it.members);
        let mut findings: Vec<Finding> = Vec::new();
        findings.extend(no_xdp(used));
        findings.extend(self.stolen(used));
        findings.extend(self.merged(used));
        findings.extend(self.unsegmented(used));
        findings.extend(self.tags(used));
        findings.extend(self.asymmetric(used));
        findings.extend(members().find_map(|it| self.polled(used, it)));
        findings.extend(members().find_map(|it| self.other_node(used, it)));
        findings.extend(self.irqbalance(used));
        findings
    }

    /// The finding that the host may use a device whose packets a capture steals from the host.
    fn stolen(&self, used: &Use<'_>) -> Option<Finding> {
        let why = self.host_use.filter(|_| used.is_stolen || used.may_steal)?;
        let fix =
            "sudo editor /etc/pcap.conf    # remove 'steal', or let the host use another device";
        let (effect, what, matter) = match used.is_stolen {
            true => (
                Effect::Loses,
                format!("a capture steals its packets from the host, which may need them: {why}"),
                "the host gets none of the packets until that capture ends; a new capture is refused",
            ),
            false => (
                Effect::Refuses,
                format!("the settings say steal = yes, and the host may use the device: {why}"),
                "a capture gets an error",
            ),
        };
        let told = [what, matter.to_owned(), fix.to_owned()];
        Some(finding(used, "stolen-from-host", effect, told))
    }

    fn merged(&self, used: &Use<'_>) -> Option<Finding> {
        // The driver merges segments before an XDP program gets them. The kernel merges segments
        // afterwards (gro), so that its merging does not concern the XDP engine.
        let merging = [
            ("rx-lro", "lro"),
            ("rx-gro-hw", "rx-gro-hw"),
            ("rx-gro", "gro"),
        ];
        let merging = merging
            .iter()
            .take(if used.is_read_on_xdp() { 2 } else { 3 });
        let is_fixed = |name: &str| self.facts.fixed.iter().any(|it| it == name);
        let is_on = |name: &str| self.is_on(name) && !is_fixed(name);
        let found: Vec<&str> = merging
            .filter(|(kernels, _)| is_on(kernels))
            .map(|it| it.1)
            .collect();
        if found.is_empty() {
            return None;
        }
        let off: Vec<String> = found.iter().map(|it| format!("{it} off")).collect();
        let device = word(&used.link.name);
        let alone = format!("ethtool -K {device} {}", off.join(" "));
        let is_merging = |knob: &Knob| {
            let mut names = ["rx-lro", "rx-gro-hw", "rx-gro"].into_iter();
            names.any(|name| *knob == feature(name))
        };
        let told = [
            format!("received segments are merged before they are captured ({})", found.join(", ")),
            "captures have fewer packets, which are longer than the packets on the wire; a short snapshot length cuts off \
             headers of the merged packets"
                .to_owned(),
            self.tune_or(&device, is_merging, alone),
        ];
        Some(finding(used, "merged-frames", Effect::Distorts, told))
    }

    /// The XDP engine captures the host's packets before the kernel or the NIC segments them. A
    /// port that serves only captures has no finding: its own packets are of no interest.
    fn unsegmented(&self, used: &Use<'_>) -> Option<Finding> {
        let cut = self.cut.as_ref().filter(|_| used.captures_sent)?;
        let told = [
            "the engine on XDP captures the host's packets before they are cut into segments".to_owned(),
            "captures have packets of up to 64 KB that are never on a wire; ethtool's tso and gso have no effect on this"
                .to_owned(),
            cut.clone(),
        ];
        Some(finding(used, "unsegmented", Effect::Distorts, told))
    }

    fn tags(&self, used: &Use<'_>) -> Option<Finding> {
        if !used.is_on_xdp || !used.is_before(TELLS_TAGS) {
            return None;
        }
        let inserts = |it: &Feature| it.name == "tx-vlan-hw-insert" && it.is_on;
        if let Some(peer) = used.peer.filter(|_| self.peers.iter().any(inserts)) {
            let told = [
                format!(
                    "its other end, {}, passes on VLAN tags outside the frames",
                    peer.name
                ),
                "before Linux 6.16 the engine on XDP captures such frames without their tags"
                    .to_owned(),
                format!("ethtool -K {} txvlan off", word(&peer.name)),
            ];
            return Some(finding(used, "tags-beside-frames", Effect::Distorts, told));
        }
        let is_nic = used.link.kind != "veth" && self.is_on(PARSES_TAGS);
        let device = word(&used.link.name);
        let alone = format!("ethtool -K {device} rxvlan off");
        let is_it = |knob: &Knob| *knob == feature(PARSES_TAGS);
        let told = [
            "it takes VLAN tags out of frames".to_owned(),
            "before Linux 6.16 the engine on XDP, which the settings ask for, is refused, and captures read packet sockets"
                .to_owned(),
            self.tune_or(&device, is_it, alone),
        ];
        is_nic.then(|| finding(used, "tags-beside-frames", Effect::Costs, told))
    }

    fn asymmetric(&self, used: &Use<'_>) -> Option<Finding> {
        let by_queue =
            |it: &&&Group| matches!(it.mode.split(['+', ' ']).next(), Some("cpu" | "qm"));
        let group = used.groups.iter().find(by_queue)?;
        let key = self.facts.value(Setting::Key)?;
        if self.facts.rx_queues() < 2 || self.is_symmetric(key) {
            return None;
        }
        let bytes: Vec<&str> = ["6D", "5A"]
            .into_iter()
            .cycle()
            .take(key.len() / 2)
            .collect();
        let device = word(&used.link.name);
        let alone = format!("ethtool -X {device} hkey {}", bytes.join(":"));
        // With a single queue both directions of a flow get the same queue, so a plan that changes
        // the number of queues fixes this problem, too.
        let is_hash = |knob: &Knob| {
            matches!(
                knob,
                Knob::Channels | Knob::Setting(Setting::Key | Setting::Transform)
            )
        };
        let told = [
            format!(
                "it gives the two directions of a flow different queues, and group {} has mode {}",
                group.number, group.mode
            ),
            "one member then gets one direction of a connection, and another member the other direction".to_owned(),
            self.tune_or(&device, is_hash, alone),
        ];
        Some(finding(used, "asymmetric-rss", Effect::Distorts, told))
    }

    /// Whether both directions of a flow have the same hash. A Toeplitz hash has this property if
    /// all 16-bit words of the key (four digits each) are equal.
    fn is_symmetric(&self, key: &str) -> bool {
        let is_repeated = key
            .bytes()
            .zip(key.bytes().skip(4))
            .all(|(one, other)| one == other);
        let transform = self.facts.value(Setting::Transform);
        transform.is_some_and(|it| it != "none") || is_repeated
    }

    /// The finding that a polling thread and a member are bound to the same CPU.
    fn polled(&self, used: &Use<'_>, member: &Member) -> Option<Finding> {
        let [cpu] = member.cpus.as_slice() else {
            return None;
        };
        let pid = member.pid?;
        let polls = |all: &&Vec<usize>| all.as_slice() == [*cpu];
        self.pollers.iter().find(polls)?;
        let is_polling = |cpu: &usize| self.pollers.iter().any(|all| all.as_slice() == [*cpu]);
        let is_free = |cpu: &&usize| !is_polling(cpu);
        let is_allowed = |cpu: &&usize| member.may_use(**cpu);
        let mut free = used.cpus.iter().filter(is_free);
        let free = free.clone().find(is_allowed).or_else(|| free.next())?;
        let told = [
            format!(
                "a thread of the kernel polls it on CPU {cpu}, and {} (pid {pid}) is bound to the same CPU",
                member.program
            ),
            "the thread and the member take turns: while one runs, packets wait or are lost"
                .to_owned(),
            member.move_to(&[*free], pid),
        ];
        Some(finding(used, "polled-on-members-cpu", Effect::Costs, told))
    }

    fn other_node(&self, used: &Use<'_>, member: &Member) -> Option<Finding> {
        let node = self.node();
        let is_near = |cpu: &usize| node.contains(cpu);
        if node.is_empty() || member.cpus.is_empty() || member.cpus.iter().any(is_near) {
            return None;
        }
        let pid = member.pid?;
        let told = [
            format!(
                "{} (pid {pid}) is bound to CPUs of another memory node than the device",
                member.program
            ),
            "the member reads each packet over the link between the nodes".to_owned(),
            member.move_to(&node, pid),
        ];
        Some(finding(used, "other-node", Effect::Costs, told))
    }

    fn irqbalance(&self, used: &Use<'_>) -> Option<Finding> {
        let is_bound = |it: &Member| !it.cpus.is_empty() && it.cpus.len() < used.cpus.len();
        let mut members = used.groups.iter().flat_map(|it| &it.members);
        let own = self.facts.interrupts.iter().map(|(it, _)| it.number);
        let own: Vec<u32> = own.collect();
        // Only root can ask irqbalance which interrupts it leaves alone. For other users, doctor
        // assumes that these are the interrupts in irqbalance's options.
        let told = self.facts.value(Setting::Irqbalance);
        let told = told.map(|it| settings::table(it).unwrap_or_default());
        let left_alone = told.as_deref().or(used.irqbalance)?;
        let is_moved = |it: &u32| !left_alone.contains(it);
        if used.irqbalance.is_none() || !own.iter().any(is_moved) || !members.any(is_bound) {
            return None;
        }
        let alone = ban(&own);
        let is_asking = |knob: &Knob| *knob == Setting::Irqbalance.into();
        let told = [
            "irqbalance moves its interrupts, and members are bound to CPUs".to_owned(),
            "sooner or later irqbalance moves an interrupt to a member's CPU, and when an interrupt moves, packets of a flow \
             can be reordered"
                .to_owned(),
            self.tune_or(&word(&used.link.name), is_asking, alone),
        ];
        Some(finding(used, "irqbalance", Effect::Costs, told))
    }
}

/// The command that adds interrupts to the interrupts that irqbalance's options already ban.
fn ban(interrupts: &[u32]) -> String {
    let banned: Vec<String> = interrupts
        .iter()
        .map(|it| format!("--banirq={it}"))
        .collect();
    format!(
        "f=/etc/default/irqbalance; old=$(sed -n 's/^ *IRQBALANCE_ARGS=//p' $f | tail -n 1 | tr -d '\"'); \
         echo \"IRQBALANCE_ARGS=\\\"$old {}\\\"\" >> $f && systemctl restart irqbalance    \
         # Debian's file; irqbalance forgets what `fanpcap tune` asked for other devices",
        banned.join(" ")
    )
}

/// The finding that the XDP engine can't use a device for which the settings ask for the engine.
fn no_xdp(used: &Use<'_>) -> Option<Finding> {
    let link = used.link;
    let why = match link {
        _ if !used.is_on_xdp => return None,
        link if link.flags & IFF_LOOPBACK != 0 => "it is a loopback device",
        link if link.kind == "bridge" => {
            "it is a bridge, which has no driver that receives: its ports have"
        }
        link if link.hardware != ARPHRD_ETHER => "its frames are not Ethernet",
        _ if used.is_before(HAS_XDP) => "the kernel is older than Linux 5.18",
        _ => return None,
    };
    let told = [
        format!("the settings ask for the engine on XDP, and {why}"),
        "captures read packet sockets, at a lower rate, and each capture begins with a warning"
            .to_owned(),
        "export PCAP_DRIVER=tpacket    # or remove the setting".to_owned(),
    ];
    Some(finding(used, "no-xdp", Effect::Costs, told))
}

const IFF_LOOPBACK: u32 = 1 << 3;
const ARPHRD_ETHER: u16 = 1;

/// The first kernel that the XDP engine supports.
const HAS_XDP: (u32, u32) = (5, 18);

/// The first kernel whose drivers pass VLAN tags to XDP programs in a way that the engine can use.
const TELLS_TAGS: (u32, u32) = (6, 16);

fn finding(used: &Use<'_>, name: &'static str, effect: Effect, told: [String; 3]) -> Finding {
    Finding::new(name, effect, &used.link.name, told)
}

fn feature(name: &str) -> Knob {
    Setting::Feature(name.to_owned()).into()
}

/// The feature of drivers that remove VLAN tags from frames.
const PARSES_TAGS: &str = "rx-vlan-hw-parse";

#[cfg(test)]
mod tests;
