//! Explains the settings of one device: each value with its origin, and the settings without effect
//! with the reason.

use super::{Compile, Handle, Plan, find};
use crate::device::{ANY, Device, Part};
use crate::driver::Driver;
use crate::fanout::Fanout;
use crate::mode::Mode;
use crate::report::{Report, did_you_mean, quote};
use crate::settings::entry::{Entry, Target};
use crate::settings::environment::{self, shell_name};
use crate::settings::keys::Key;
use crate::settings::{Environment, Settings, Value};
use fanpcap_steer::nearest::{nearest, nearest_within};
use std::collections::BTreeSet;

/// The settings of a handle on a device, explained.
#[derive(Debug, Clone)]
pub struct Explained {
    /// The device's name in settings.
    pub device: String,
    /// The plan of the handle, or the reason why the library refuses the handle.
    pub plan: Result<Plan, Report>,
    /// The origins of the values.
    pub origins: Origins,
    /// Settings for this device that another setting overrides.
    pub ignored: Vec<Ignored>,
}

/// The settings that determine the values, such as `PCAP_GROUP=7` or `/etc/pcap.conf:3`. `None`
/// stands for the default value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origins {
    /// Origin of the group.
    pub group: Option<String>,
    /// Origin of the mode or the steering program.
    pub mode: Option<String>,
    /// The mode that the settings ask for, if it is a mode of the kernel's. On an engine, the plan
    /// has a steering program in its place.
    pub kernel_mode: Option<Mode>,
    /// Origin of the member's name.
    pub member: Option<String>,
    /// Origin of the upper bound of the snapshot length.
    pub caplen: Option<String>,
    /// Origin of the ring's size.
    pub ring: Option<String>,
    /// Origin of the driver, and the driver.
    pub driver: Option<(String, Driver)>,
}

/// A setting without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// The setting as written: `PCAP_GROUP_eth9=5`, `fanout@6 = lb`.
    pub setting: String,
    /// The key of the setting, or of the variable that was probably meant; `None` if unknown.
    pub key: Option<Key>,
    /// Its place: `environment`, `/etc/pcap.conf:3`.
    pub place: String,
    /// The reason, for scripts.
    pub reason: Reason,
    /// The reason, for people.
    pub why: String,
    /// What to do.
    pub hint: Option<String>,
}

/// The reason why a setting has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Another setting for the same value takes precedence.
    Overridden,
    /// The device that the setting names does not exist.
    NoSuchDevice,
    /// No setting puts a handle into the group that this setting names.
    NobodysGroup,
    /// The setting is a mode, and the device is in no group.
    NoGroup,
    /// The variable is unknown.
    UnknownName,
    /// It is a function of a steering program, and a later function always selects the member.
    LaterSteering,
}

impl Reason {
    /// The reason as a word, for scripts.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Overridden => "overridden",
            Reason::NoSuchDevice => "no-such-device",
            Reason::NobodysGroup => "nobodys-group",
            Reason::NoGroup => "no-group",
            Reason::UnknownName => "unknown-name",
            Reason::LaterSteering => "later-steering",
        }
    }
}

impl Settings {
    /// Explains the settings of `device`, a single device. Uses the code of [`Settings::plan`], so
    /// that the explanation agrees with the plan.
    pub fn explain(
        &self,
        device: &Device,
        interfaces: &[String],
        compile: Compile<'_>,
    ) -> Explained {
        let plan = self.plan(device, None, interfaces, compile);
        let part = device.parts().first();
        let handle = part.map(|part| Handle {
            asked: self.asked(device, part),
            call: None,
            interfaces,
            compile,
        });
        let used = handle.as_ref().map(Used::of).unwrap_or_default();
        let later = |handle: &Handle<'_>| {
            let all = self.environment.iter().chain(&self.file);
            let later = all.filter_map(|entry| used.overrides(entry, handle));
            later.collect()
        };
        Explained {
            device: part.map_or_else(String::new, |part| part.name.clone()),
            plan,
            origins: used.origins(),
            ignored: handle.as_ref().map(later).unwrap_or_default(),
        }
    }

    /// The settings without effect on any device. `environment` has all variables of the process.
    pub fn without_effect(&self, environment: &Environment, interfaces: &[String]) -> Vec<Ignored> {
        let entries = self.environment.iter().chain(&self.file);
        let mut ignored: Vec<Ignored> = entries
            .filter_map(|entry| self.of_nobody(entry, interfaces))
            .collect();
        for (name, value) in &environment.variables {
            let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
            let stranger = environment::stranger(&name).filter(|_| !value.is_empty());
            ignored.extend(stranger.map(|(why, hint, key)| Ignored {
                setting: format!("{name}={value}"),
                key,
                place: environment::SOURCE.to_owned(),
                reason: Reason::UnknownName,
                why,
                hint: Some(hint),
            }));
        }
        ignored
    }

    /// The virtual devices that settings name: `eth0:1`.
    pub fn virtual_devices(&self) -> Vec<String> {
        let name = |entry: &Entry| match &entry.target {
            Target::Device(name) => Some(name.clone()).filter(|name| name.contains(':')),
            Target::All | Target::Group(_) | Target::Channel(..) => None,
        };
        self.file.iter().filter_map(name).collect()
    }

    fn of_nobody(&self, entry: &Entry, interfaces: &[String]) -> Option<Ignored> {
        match &entry.target {
            Target::Device(name) | Target::Channel(name, _) => {
                let is_there = is_there(name, entry, interfaces);
                (!is_there).then(|| no_device(entry, name, interfaces))
            }
            Target::Group(group) if entry.key == Key::Fanout => {
                let is_joined = self.joined().any(|joined| joined == *group);
                (!is_joined).then(|| self.nobodys_group(entry, *group))
            }
            Target::Group(_) | Target::All => None,
        }
    }

    /// The groups into which settings put handles.
    fn joined(&self) -> impl Iterator<Item = u16> {
        let entries = self.environment.iter().chain(&self.file);
        let entries = entries.filter(|entry| entry.key == Key::Group);
        entries.filter_map(|entry| entry.value.group())
    }

    /// A mode for a group that no handle joins by settings. Another group was probably meant if it
    /// is the only one without a mode.
    fn nobodys_group(&self, entry: &Entry, group: u16) -> Ignored {
        let is_default = |group| Some(group) == self.default_group();
        let has_mode = |&group: &u16| {
            find(&self.file, Key::Fanout, &Target::Group(group)).is_some()
                || (is_default(group) && self.default_fanout().is_some())
        };
        let without: BTreeSet<u16> = self.joined().filter(|it| !has_mode(it)).collect();
        let why = format!(
            "no setting puts a device in group {group}, so this is only for applications that call \
             pcap_fanout()"
        );
        let meant = |other: &u16| did_you_mean(&format!("fanout@{other}"));
        Ignored {
            hint: without.first().filter(|_| without.len() == 1).map(meant),
            ..ignored(entry, Reason::NobodysGroup, why)
        }
    }
}

/// The settings that determine a handle's values.
#[derive(Default)]
struct Used<'a> {
    group: Option<&'a Entry>,
    mode: Option<&'a Entry>,
    caplen: Option<&'a Entry>,
    ring: Option<&'a Entry>,
    member: Option<&'a Entry>,
    driver: Option<&'a Entry>,
}

impl<'a> Used<'a> {
    /// Finds the settings that the handle uses. Ignores refusals, which the plan reports.
    fn of(handle: &Handle<'a>) -> Self {
        let group = handle.group_entry().ok().flatten();
        let mode = group.and_then(|(group, _)| {
            let group = super::Group::Number(group);
            handle.fanout_entry(group).ok().flatten()
        });
        Self {
            group: group.map(|(_, entry)| entry),
            mode,
            caplen: handle.asked.settings.for_all(Key::Caplen),
            ring: handle.asked.ring(),
            member: handle.asked.settings.for_all(Key::Member),
            driver: handle.asked.driver(),
        }
    }

    fn origins(&self) -> Origins {
        let origin = |entry: Option<&Entry>| entry.map(Entry::origin);
        let engine = |entry: &Entry| Some((entry.origin(), entry.engine()?));
        let kernel_mode = |entry: &Entry| {
            let Value::Fanout(Fanout::Mode(mode)) = entry.value else {
                return None;
            };
            Some(mode)
        };
        Origins {
            group: origin(self.group),
            mode: origin(self.mode),
            kernel_mode: self.mode.and_then(kernel_mode),
            member: origin(self.member),
            caplen: origin(self.caplen),
            ring: origin(self.ring),
            driver: self.driver.and_then(engine),
        }
    }

    /// The reason why the handle does not use an entry. `None` if the handle uses the entry, or if
    /// the entry concerns only other handles.
    fn overrides(&self, entry: &Entry, handle: &Handle<'_>) -> Option<Ignored> {
        let used = [
            (Key::Group, self.group),
            (Key::Fanout, self.mode),
            (Key::Program, self.mode),
            (Key::Member, self.member),
            (Key::Caplen, self.caplen),
            (Key::Ring, self.ring),
            (Key::Driver, self.driver),
        ];
        // Only settings of these keys are reported as ignored.
        let (_, first) = used.into_iter().find(|(key, _)| *key == entry.key)?;
        let group = self.group.and_then(|entry| entry.value.group());
        let concerns = match (entry.key, &entry.target) {
            // In the file, a mode without a target applies to the default group.
            (Key::Fanout | Key::Program, Target::All) if !entry.is_variable() => {
                group.is_some() && group == handle.asked.settings.default_group()
            }
            (Key::Fanout, Target::Group(number)) => group == Some(*number),
            (Key::Group | Key::Fanout, Target::Device(name)) => {
                let spelled = entry.is_variable() && shell_name(&handle.asked.part.name) == *name;
                handle.asked.part.name == *name || spelled
            }
            _ => handle.asked.concerns(entry),
        };
        match first {
            _ if !concerns => None,
            Some(first) if std::ptr::eq(first, entry) => None,
            Some(first) => {
                let why = format!("{} has precedence", shown(&first.origin()));
                Some(ignored(entry, Reason::Overridden, why))
            }
            None => {
                let name = &handle.asked.part.name;
                let why = format!("{name} is in no group");
                Some(ignored(entry, Reason::NoGroup, why))
            }
        }
    }
}

/// Whether a device in a setting is an interface, `any`, or a virtual device on an interface.
fn is_there(name: &str, entry: &Entry, interfaces: &[String]) -> bool {
    let any = ANY.to_owned();
    let is = |base: &str| interfaces.iter().chain([&any]).any(|it| it == base);
    let exists = |name: &str| is(name);
    if is(&base_of(name, exists)) {
        return true;
    }
    let spelled = |interface: &String| {
        let interface = shell_name(interface);
        let rest = name.strip_prefix(interface.as_str());
        let is_number = |rest: &str| {
            rest.is_empty()
                || rest
                    .strip_prefix('_')
                    .is_some_and(|it| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit()))
        };
        rest.is_some_and(is_number)
    };
    entry.is_variable() && interfaces.iter().chain([&any]).any(spelled)
}

/// The interface of a virtual device, or the device itself.
fn base_of(name: &str, exists: impl Fn(&str) -> bool) -> String {
    let parts = Device::classify(name, exists);
    let base = |part: &Part| part.base.clone();
    parts.parts().first().map(base).unwrap_or_default()
}

fn no_device(entry: &Entry, name: &str, interfaces: &[String]) -> Ignored {
    let why = format!("there is no device {}", quote(name));
    let is_group = entry.key == Key::Fanout && name.parse::<u16>().is_ok();
    let for_group = || format!("for group {name} write 'fanout@{name} = MODE' into pcap.conf");
    let near = nearest(name, interfaces.iter().map(String::as_str));
    let as_near = |limit: usize| {
        let within = |it: &&String| nearest_within(limit, name, [it.as_str()]).is_some();
        interfaces.iter().filter(within).count()
    };
    let is_only = (0..name.len()).map(as_near).find(|&count| count > 0) == Some(1);
    let hint = near.map(|near| {
        // A device whose name has another number is likely another device, which is absent now.
        let is_misspelt = is_only && !letters(name).eq(letters(near));
        let near = match entry.is_variable() {
            true => shell_name(near),
            false => near.to_owned(),
        };
        // The key precedes the device, and may contain its name.
        let (before, behind) = entry.name.rsplit_once(name).unwrap_or_default();
        let meant = format!("{before}{near}{behind}");
        match is_misspelt {
            true => did_you_mean(&meant),
            false => format!("did you mean '{meant}', or a device with another similar name?"),
        }
    });
    let for_all = || {
        let family = entry.name.strip_suffix(name)?.strip_suffix('_')?;
        let is_one = [Key::Group, Key::Fanout].contains(&entry.key) && entry.is_variable();
        is_one.then(|| format!("for every device it is {family}"))
    };
    Ignored {
        hint: is_group
            .then(for_group)
            .or(hint)
            .or_else(for_all)
            .or_else(|| choices(interfaces)),
        ..ignored(entry, Reason::NoSuchDevice, why)
    }
}

/// The devices that a setting may name; `None` without a device.
fn choices(interfaces: &[String]) -> Option<String> {
    match interfaces.len() {
        0 => None,
        1..=CHOICES_SHOWN => Some(format!("the devices here are: {}", interfaces.join(", "))),
        _ => Some("'ip -brief link' lists the devices".to_owned()),
    }
}

const CHOICES_SHOWN: usize = 8;

/// A name without its digits.
fn letters(name: &str) -> impl Iterator<Item = char> {
    name.chars().filter(|c| !c.is_ascii_digit())
}

fn ignored(entry: &Entry, reason: Reason, why: String) -> Ignored {
    let place = &entry.place;
    Ignored {
        setting: shown(place.text.trim()),
        key: Some(entry.key),
        place: match entry.is_variable() {
            true => place.source.clone(),
            false => entry.origin(),
        },
        reason,
        why,
        hint: None,
    }
}

fn shown(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
