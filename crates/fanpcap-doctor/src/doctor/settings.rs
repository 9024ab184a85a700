//! Finds errors in the settings, and settings without effect. Checks whether the group that the
//! settings name can be joined.

use std::io;

use fanpcap::overview::Overview;
use fanpcap_config::driver::Driver;
use fanpcap_config::report::{Report, harmless_text, quote};
use fanpcap_config::settings::{
    Group as Joined, GroupChoice, Ignored, Key, Reason, Steal, shell_name,
};
use fanpcap_group::join::{self, Runs};
use fanpcap_pcap::compile_expression;
use fanpcap_snapshot::{is_pollers, unreachable};

use super::finding::{Effect, Finding, word};
use super::groups::Group;
use super::privileges::Needs;

mod fix;

/// Facts of the settings.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// Errors in the settings.
    pub(super) errors: Vec<Report>,
    /// Settings without effect.
    pub(super) vain: Vec<Ignored>,
    /// The groups that the settings name for devices.
    pub(super) wanted: Vec<GroupSetting>,
    /// The devices for which the settings ask for the XDP engine, each with the setting's origin.
    pub(super) on_xdp: Vec<(String, String)>,
    /// The devices whose packets the host must not get (`steal = yes`).
    pub(super) stolen: Vec<String>,
    /// The devices on which the XDP engine would capture the packets that the host sends.
    pub(super) sent: Vec<String>,
    /// The pollers that this user can't use.
    pub(super) without_poller: Vec<NoPoller>,
    /// The devices on engines of which no poller runs, or which have no poller.
    pub(super) unserved: Vec<(Driver, String)>,
    /// Whether all handles get their packets from pollers, so that they need no privilege.
    pub(super) are_all_of_pollers: bool,
}

/// A poller that the settings name, or the caller, and that this user can't use.
#[derive(Clone, Debug)]
pub(super) struct NoPoller {
    /// Its socket, such as `packet:eth0`.
    socket: String,
    /// What asks for it.
    origin: String,
    kind: io::ErrorKind,
    /// Why, and what to do.
    why: String,
}

/// A device and the group that the settings name for it.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupSetting {
    /// The device, as settings name it.
    pub(super) device: String,
    pub(super) ifindex: u32,
    pub(super) group: u16,
    /// The setting: `PCAP_GROUP=7`, `/etc/pcap.conf:3`.
    pub(super) origin: String,
    /// The mode that the settings ask for, and the different mode that the group has.
    pub(super) other_mode: Option<(String, String)>,
}

impl Settings {
    /// The settings as the library reads them, for `device`, or for all devices if it is `None`.
    /// Members wait for the devices `awaited`, which are gone.
    pub(super) fn read(
        device: Option<&str>,
        awaited: &[String],
        ifindex: impl Fn(&str) -> Option<u32>,
    ) -> Self {
        let seen = Overview::read(device, || awaited.to_vec(), &compile_expression);
        let errors: Vec<Report> = seen.errors().into_iter().cloned().collect();
        let vain = seen.ignored().into_iter().cloned().collect();
        let (mut wanted, mut on_xdp) = (Vec::new(), Vec::new());
        let (mut stolen, mut sent) = (Vec::new(), Vec::new());
        let (mut without_poller, mut unserved) = (Vec::new(), Vec::new());
        let mut are_all_of_pollers = errors.is_empty();
        for entry in seen.devices.iter().flatten() {
            let device = &entry.explained.device;
            let Ok(plan) = &entry.explained.plan else {
                continue;
            };
            if let Some(xdp) = &plan.on_engine {
                on_xdp.push((device.clone(), xdp.origin.clone()));
                stolen.extend((xdp.steal == Steal::Yes).then(|| device.clone()));
                sent.extend(xdp.outgoing.then(|| device.clone()));
            }
            let base = entry.base.as_str();
            let polled = plan.polled.as_ref();
            let of_poller = polled.filter(|it| it.engine.has_poller());
            are_all_of_pollers &= of_poller.is_some();
            let none = of_poller.and_then(|it| NoPoller::of(it.engine, base, &it.origin));
            let is_unserved = of_poller.is_none() || none.as_ref().is_some_and(NoPoller::is_absent);
            let engine = polled.filter(|_| is_unserved).map(|it| it.engine);
            unserved.extend(engine.map(|engine| (engine, base.to_owned())));
            without_poller.extend(none);
            // The kernel knows no groups of pollers.
            let joined = plan.choice.as_ref().filter(|_| plan.polled.is_none());
            if let Some((joined, ifindex)) = joined.zip(ifindex(base)) {
                wanted.extend(GroupSetting::of(device, ifindex, joined));
            }
        }
        Self {
            errors,
            vain,
            wanted,
            on_xdp,
            stolen,
            sent,
            without_poller,
            unserved,
            are_all_of_pollers,
        }
    }

    /// What handles need that the settings concern.
    pub(super) fn needs(&self) -> Needs {
        Needs {
            xdp: !self.on_xdp.is_empty(),
            library: self.unserved.iter().any(|(engine, _)| !engine.has_poller()),
            nothing: self.are_all_of_pollers,
        }
    }

    /// The problems of the settings alone.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let errors = self.errors.iter().map(error);
        let vain = self
            .vain
            .iter()
            .filter(|it| it.reason != Reason::Overridden);
        let pollers = self.without_poller.iter().map(NoPoller::finding);
        errors.chain(vain.map(in_vain)).chain(pollers).collect()
    }
}

impl NoPoller {
    /// `None` if the poller serves this user.
    fn of(engine: Driver, device: &str, origin: &str) -> Option<Self> {
        let error = fanpcap_snapshot::poller(engine.name(), device).err()?;
        let socket = format!("{engine}:{device}");
        Some(Self {
            why: unreachable(&socket, &error).to_string(),
            origin: origin.to_owned(),
            kind: error.kind(),
            socket,
        })
    }

    /// Whether no poller runs for the device.
    fn is_absent(&self) -> bool {
        let kinds = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
        kinds.contains(&self.kind)
    }

    fn finding(&self) -> Finding {
        let socket = &self.socket;
        let is = |kind| self.kind == kind;
        let fix = if is(io::ErrorKind::PermissionDenied) {
            format!(
                "fanpcap poller {socket} --socket-group GROUP    # as root; GROUP is a group of \
                 this user"
            )
        } else if is(io::ErrorKind::TimedOut) {
            format!("systemctl restart 'fanpcap-poller@{socket}'    # or continue the process")
        } else {
            format!("fanpcap poller {socket}    # as root")
        };
        let told = [
            harmless_text(&self.why),
            format!("{} asks for it: a capture gets an error", self.origin),
            fix,
        ];
        Finding::new("no-poller", Effect::Refuses, socket, told)
    }
}

impl GroupSetting {
    fn of(device: &str, ifindex: u32, joined: &GroupChoice) -> Option<Self> {
        let Joined::Number(group) = joined.group else {
            return None;
        };
        let asked = joined.steering.as_ref().map(|it| it.title().to_owned());
        let asked = asked.unwrap_or_else(|| joined.mode.to_string());
        let digest = joined.steering.as_ref().map(|it| it.digest());
        let other = match join::runs(ifindex, group) {
            _ if joined.is_default => None,
            Runs::Nothing => None,
            Runs::Kernel(has) => (has != joined.mode).then(|| has.to_string()),
            Runs::Program(_, has) => {
                let is_other = has.as_ref().is_some_and(|has| Some(has.digest) != digest);
                has.filter(|_| is_other).map(|has| has.title)
            }
        };
        Some(Self {
            device: device.to_owned(),
            ifindex,
            group,
            origin: joined.origin.clone(),
            other_mode: other.map(|has| (asked, has)),
        })
    }

    /// The findings that say why the group can't be joined, or which other programs are in it.
    /// `groups` are the groups of the network namespace.
    pub(super) fn findings(&self, groups: &[Group]) -> Vec<Finding> {
        // A number at a poller says nothing about the kernel's groups.
        let of_kernel = |it: &&Group| it.number == self.group && !is_pollers(&it.device);
        let of_number = || groups.iter().filter(of_kernel);
        // The kernel does not know a group that only a founder keeps.
        let is_elsewhere = |it: &&Group| it.ifindex != self.ifindex && !it.members.is_empty();
        if let Some(other) = of_number().find(is_elsewhere) {
            return vec![self.elsewhere(other, groups)];
        }
        let Some(own) = of_number().find(|it| it.ifindex == self.ifindex) else {
            return Vec::new();
        };
        let is_strangers = !own.members.is_empty() && own.members.iter().all(|it| !it.is_ours);
        let mode = self
            .other_mode
            .as_ref()
            .map(|(asked, has)| self.mode(asked, has));
        let strangers = is_strangers.then(|| self.strangers(own, groups));
        mode.into_iter().chain(strangers).collect()
    }

    fn finding(&self, name: &'static str, effect: Effect, told: [String; 3]) -> Finding {
        Finding::new(name, effect, &self.device, told)
    }

    fn elsewhere(&self, other: &Group, groups: &[Group]) -> Finding {
        let told = [
            format!(
                "{} names group {}, which is already on {}",
                self.origin, self.group, other.device
            ),
            "the kernel allows a group only on one device: a capture gets an error".to_owned(),
            self.another_group(groups),
        ];
        self.finding("group-elsewhere", Effect::Refuses, told)
    }

    fn mode(&self, asked: &str, has: &str) -> Finding {
        let told = [
            format!(
                "the settings ask for {}, and group {} has {}",
                quote(asked),
                self.group,
                quote(has)
            ),
            "all members of a group have the same mode: a capture gets an error".to_owned(),
            format!(
                "export PCAP_FANOUT_{}={}",
                shell_name(&self.device),
                word(has)
            ),
        ];
        self.finding("group-mode", Effect::Refuses, told)
    }

    fn strangers(&self, own: &Group, groups: &[Group]) -> Finding {
        let told = [
            format!(
                "{} names group {}, whose {} members do not read by fanpcap's library",
                self.origin,
                self.group,
                own.members.len()
            ),
            "a capture gets an error, or shares the packets with an application that does not belong to its group".to_owned(),
            self.another_group(groups),
        ];
        self.finding("group-taken", Effect::Loses, told)
    }

    /// The shell command that sets the device's variable to an unused group. A variable overrides
    /// every other setting.
    fn another_group(&self, groups: &[Group]) -> String {
        let is_free = |number: &u16| groups.iter().all(|it| it.number != *number);
        let free = (1..u16::MAX).find(is_free).unwrap_or(1);
        format!("export PCAP_GROUP_{}={free}", shell_name(&self.device))
    }
}

fn error(report: &Report) -> Finding {
    let place = report.place.as_deref();
    let at = place.map(|it| format!("{}:{}:{}", it.source, it.line, it.column));
    let hint = report.hint.as_ref().map(|hint| format!("; {hint}"));
    let told = [
        harmless_text(&(report.message.clone() + &hint.unwrap_or_default())),
        "every capture that these settings concern gets this error".to_owned(),
        fix::of_error(report),
    ];
    Finding::new(
        "settings",
        Effect::Refuses,
        &harmless_text(&at.unwrap_or_else(|| "the settings".to_owned())),
        told,
    )
}

fn in_vain(ignored: &Ignored) -> Finding {
    let hint = ignored.hint.as_ref().map(|hint| format!("; {hint}"));
    let what = if ignored.reason == Reason::LaterSteering {
        String::new()
    } else {
        let setting = ignored.setting.lines().next().unwrap_or_default();
        format!("{setting} has no effect: ")
    };
    let (effect, why) = consequence(ignored.key);
    let told = [
        harmless_text(&format!(
            "{what}{}{}",
            ignored.why,
            hint.unwrap_or_default()
        )),
        why.to_owned(),
        fix::of_vain(ignored),
    ];
    Finding::new("set-in-vain", effect, &harmless_text(&ignored.place), told)
}

/// What a setting of this key changes for captures if it has no effect.
fn consequence(key: Option<Key>) -> (Effect, &'static str) {
    use Effect::{Costs, Distorts};
    let Some(key) = key else {
        return (
            Distorts,
            "a capture runs without the setting that was meant",
        );
    };
    match key {
        Key::Group => (
            Distorts,
            "an application that relies on it gets every packet, or the share of another group",
        ),
        Key::Fanout | Key::Program => (
            Distorts,
            "the packets are shared in another way than intended",
        ),
        Key::Member => (
            Distorts,
            "no later member replaces this one: its flows move when it ends",
        ),
        Key::Caplen => (
            Distorts,
            "packets are captured in the length that the application sets",
        ),
        Key::Ring => (Costs, "the ring has another size than intended"),
        Key::Driver => (Costs, "another engine captures than intended"),
        Key::Steal => (
            Distorts,
            "the host gets the device's packets, or not, as if this setting were absent",
        ),
        Key::Outgoing => (
            Distorts,
            "packets that the host sends are captured, or not, as if this setting were absent",
        ),
        Key::Gone => (
            Distorts,
            "a capture ends or waits as if this setting were absent when its device is removed",
        ),
        Key::Keep => (
            Costs,
            "the device's channels and CPUs are put back, or kept, as if this setting were absent",
        ),
        Key::RxChannels
        | Key::TxChannels
        | Key::OtherChannels
        | Key::CombinedChannels
        | Key::Channels => (Costs, "the device keeps its number of channels"),
        Key::Irq => (Costs, "the channel's interrupt stays on its CPUs"),
        Key::Napi => (Costs, "the channel is polled on another CPU than intended"),
    }
}

#[cfg(test)]
mod tests;
