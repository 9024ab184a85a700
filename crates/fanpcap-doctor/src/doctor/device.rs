//! Checks whether packets reach a device, which BPF program gets the packets before captures do,
//! and how many CPUs receive the packets.

use fanpcap_linux::bpf;
use fanpcap_linux::netlink::link::{Link, xdp_mode};
use fanpcap_linux::process::cpu;
use fanpcap_nic::knob::{Knob, Setting};
use fanpcap_nic::plan::{self, Wishes};

use super::finding::{Effect, Finding, word};
use super::nic::Nic;

/// Facts of a device.
#[derive(Clone, Debug, Default)]
pub(super) struct Device {
    /// The device itself.
    pub(super) link: Link,
    /// A veth's peer, if it is in this network namespace.
    pub(super) peer: Option<Link>,
    /// The name of the device's XDP program; `None` without one, or if the kernel does not report
    /// it.
    pub(super) xdp_name: Option<String>,
    /// Packets that the device dropped for lack of room between doctor's two readings.
    pub(super) missed: u64,
    /// Several members share the device's packets, or would share them by the settings.
    pub(super) is_shared: bool,
    /// A member steals the device's packets from the host, which may need them.
    pub(super) is_stolen: bool,
    /// Members read the XDP engine on the device, or would by the settings.
    pub(super) is_on_engine: bool,
    /// The XDP engine captures the packets that the host sends, or would by the settings.
    pub(super) captures_sent: bool,
    /// The device's driver.
    pub(super) nic: Nic,
}

const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 1 << 3;
const IFF_LOWER_UP: u32 = 1 << 16;

impl Device {
    /// Facts of the device of this link. `before` is the same device in doctor's first reading.
    /// `all` are the devices of the namespace.
    pub(super) fn read(link: &Link, before: &Link, all: &[Link]) -> Self {
        let is_here = link.kind == "veth" && link.peer_namespace.is_none();
        let peer = link.peer.filter(|_| is_here);
        let peer = peer.and_then(|peer| all.iter().find(|it| it.index == peer));
        let since = |count: fn(&Link) -> u64| count(link).saturating_sub(count(before));
        Self {
            nic: Nic::read(link, peer, all),
            peer: peer.cloned(),
            xdp_name: link.xdp.and_then(|xdp| bpf::program_name(xdp.program).ok()),
            missed: since(|it| it.counters.rx_missed) + since(|it| it.counters.rx_fifo),
            is_shared: false,
            is_stolen: false,
            is_on_engine: false,
            captures_sent: false,
            link: link.clone(),
        }
    }

    /// The device's name as a shell word.
    pub(super) fn word(&self) -> String {
        word(&self.link.name)
    }

    /// The problems of the device.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let all = [self.state(), self.xdp(), self.missed(), self.one_cpu()];
        all.into_iter().flatten().collect()
    }

    /// A finding about this device.
    pub(super) fn finding(&self, name: &'static str, effect: Effect, told: [String; 3]) -> Finding {
        Finding::new(name, effect, &self.link.name, told)
    }

    fn state(&self) -> Option<Finding> {
        let flags = self.link.flags;
        if flags & IFF_UP == 0 {
            let told = [
                "the device is down".to_owned(),
                "no packet arrives, and a capture that is opened on it gets an error".to_owned(),
                format!("ip link set dev {} up", self.word()),
            ];
            return Some(self.finding("down", Effect::Loses, told));
        }
        if flags & (IFF_LOWER_UP | IFF_LOOPBACK) != 0 {
            return None;
        }
        let why = "no packet arrives: captures run, and stay empty";
        let (what, fix) = match &self.peer {
            Some(peer) if peer.flags & IFF_UP == 0 => (
                format!("its other end, {}, is down", peer.name),
                format!("ip link set dev {} up", word(&peer.name)),
            ),
            _ => (
                "the link is down: no active port is at its other end".to_owned(),
                format!(
                    "ethtool {}    # shows the link: cable, transceiver, other end",
                    self.word()
                ),
            ),
        };
        Some(self.finding("no-link", Effect::Loses, [what, why.to_owned(), fix]))
    }

    fn xdp(&self) -> Option<Finding> {
        let xdp = self.link.xdp?;
        let name = self.xdp_name.as_deref()?;
        if name.starts_with("fanpcap_") {
            return None;
        }
        let hook = match xdp.mode {
            xdp_mode::GENERIC => "xdpgeneric",
            xdp_mode::HARDWARE => "xdpoffload",
            _ => "xdpdrv",
        };
        let told = [
            format!(
                "it has a foreign XDP program, {name} (id {})",
                xdp.program
            ),
            "packets that this program drops or redirects reach no capture, and no capture counts them; \
             the XDP engine can't use the device"
                .to_owned(),
            format!(
                "ip link set dev {} {hook} off    # or end the application that attached it",
                self.word()
            ),
        ];
        Some(self.finding("foreign-xdp", Effect::Loses, told))
    }

    fn missed(&self) -> Option<Finding> {
        if self.missed == 0 {
            return None;
        }
        let told = [
            format!("it had no room for {} packets while doctor looked", self.missed),
            "they are lost before any capture: the CPUs that receive are too slow, or start to poll too late"
                .to_owned(),
            self.nic.more_room(&self.word()).unwrap_or_else(|| {
                "sysctl -w net.core.netdev_budget=600 net.core.netdev_budget_usecs=4000".to_owned()
            }),
        ];
        Some(self.finding("device-drops", Effect::Loses, told))
    }

    /// The finding that the device would have if members shared its packets.
    pub(super) fn with_a_group(&self) -> Option<Finding> {
        let shared = Self {
            is_shared: true,
            ..self.clone()
        };
        shared.one_cpu()
    }

    fn one_cpu(&self) -> Option<Finding> {
        let facts = &self.nic.facts;
        let rps = facts.value(Setting::Rps(0));
        // A device with several queues has an rps_cpus file for each queue. If a file contains
        // CPUs, the packets of its queue move to these CPUs behind the XDP engine.
        let is_moved = match self.is_on_engine {
            true => facts.value(Knob::Threaded) == Some("on"),
            false => rps != Some(""),
        };
        let has_one_queue = rps.is_some() && facts.value(Setting::Rps(1)).is_none();
        if !self.is_shared || is_moved || !has_one_queue || facts.cpus.len() < 2 {
            return None;
        }
        let (rate, repair) = match self.is_on_engine {
            true => (
                "that CPU limits the rate for any number of members, and to less if it runs a member, too; RPS has no effect, \
                 because the XDP engine gets the packets first",
                self.threads(),
            ),
            false => (
                "that CPU limits the rate to some 1 to 2 million packets a second, for any number of members, and to less if it runs \
                 a member, too",
                self.steer(),
            ),
        };
        // The packets of a veth come to as many queues as its peer sends by.
        let queues = self.more_queues().filter(|_| facts.driver != "veth");
        let told = [
            "it has one receive queue, whose packets one CPU hands to all members".to_owned(),
            rate.to_owned(),
            queues.unwrap_or(repair),
        ];
        Some(self.finding("one-receiving-cpu", Effect::Costs, told))
    }

    /// The command that moves packets to other CPUs by RPS.
    fn steer(&self) -> String {
        let file = format!("/sys/class/net/{}/queues/rx-0/rps_cpus", self.link.name);
        let alone = format!("echo {} > {}", mask(self.nic.facts.cpus.len()), word(&file));
        let steers = |knob: &Knob| matches!(knob, Knob::Setting(Setting::Rps(0)));
        let tuned = self.nic.tune(&self.word(), steers, &alone);
        let both = "gives this work a CPU without members; or gives it several CPUs";
        tuned.map_or(alone, |it| it.replace("this alone", both))
    }

    /// The command that makes a thread of the kernel poll the device.
    fn threads(&self) -> String {
        let wishes = Wishes {
            threads: true,
            ..Wishes::default()
        };
        let is_it = |step: &plan::Step| step.target == plan::Target::Knob(Knob::Threaded);
        let plan = plan::plan(&self.nic.facts, wishes);
        match plan.is_ok_and(|plan| plan.steps.iter().any(is_it)) {
            true => format!(
                "fanpcap tune {} --apply --threads    # a thread does this work on a CPU without members",
                self.word()
            ),
            false => {
                let file = format!("/sys/class/net/{}/threaded", self.link.name);
                format!("echo 1 > {}", word(&file))
            }
        }
    }

    /// The `fanpcap tune` command that gives the device queues on two CPUs; `None` if the device
    /// can't have them.
    fn more_queues(&self) -> Option<String> {
        let wishes = Wishes {
            queues: Some(2),
            ..Wishes::default()
        };
        let plan = plan::plan(&self.nic.facts, wishes).ok()?;
        let is_spread = plan.receive.first() != plan.receive.last();
        is_spread.then(|| format!("fanpcap tune {} --apply --queues 2", self.word()))
    }
}

/// The finding on members that wait for this device, which is gone.
pub(super) fn gone(device: &str, members: usize) -> Finding {
    let wait = match members {
        1 => "1 member waits".to_owned(),
        _ => format!("{members} members wait"),
    };
    let told = [
        format!("{wait} until a device of this name is up"),
        "until then they capture nothing: the device is removed, renamed or down".to_owned(),
        format!(
            "ip link set dev {} up    # if it exists: 'ip -brief link' lists the devices",
            word(device)
        ),
    ];
    Finding::new("device-gone", Effect::Loses, device, told)
}

/// The mask of this many CPUs: words of 32 bits, highest first.
fn mask(cpus: usize) -> String {
    let all: Vec<usize> = (0..cpus).collect();
    let mask = cpu::mask_text(&all);
    mask.trim_start_matches(['0', ',']).to_owned()
}

#[cfg(test)]
mod tests;
