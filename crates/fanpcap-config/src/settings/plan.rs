//! The plan that settings make for one handle: the group it joins, the mode, the snapshot length.

use super::asked::Asked;
use super::entry::{Entry, Target};
use super::environment::shell_name;
use super::group_choice::{CALL, FanoutCall, Group, GroupChoice};
use super::keys::{Honoured, Key};
use super::on_engine::{self, OnEngine, Polled};
use super::placement::Placement;
use super::value::Value;
use super::{Settings, find};
use crate::device::Device;
use crate::driver::Driver;
use crate::fanout::{Fanout, Script};
use crate::mode::ModeKind;
use crate::mode::options::{class_needs_engine, not_classified};
use crate::report::{Fault, Report, quote};
use crate::steering::Steering;
use std::sync::Arc;

/// Compiles the steering program of a script, once for each handle.
pub type Compile<'a> = &'a dyn Fn(&Script) -> Result<Arc<Steering>, Report>;

/// The plan of one handle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The group to join; `None` if the handle joins no group.
    pub choice: Option<GroupChoice>,
    /// The upper bound of the snapshot length.
    pub caplen: Option<u32>,
    /// The size of the handle's ring in bytes that settings ask for, in place of the application's.
    pub ring: Option<i32>,
    /// Whether settings or the device's name ask for packet sockets with our reader.
    pub tpacket: bool,
    /// Whether the device's name asks for our reader. If so, and our reader can't be used, the
    /// application gets a warning.
    pub by_name: bool,
    /// The engine that attaches to devices and that settings or the device's name ask for, with its
    /// settings.
    pub on_engine: Option<OnEngine>,
    /// The engine with a poller that settings or the device's name ask for, with its settings.
    pub polled: Option<Polled>,
    /// The setting that makes the handle wait when its device is gone; `None` if the application
    /// gets an error, as from the system's library.
    pub waits_if_gone: Option<String>,
    /// Changes to the device's channels, interrupts and polling threads that settings ask for.
    pub placement: Option<Placement>,
}

impl Plan {
    /// Whether our reader reads the handle, rather than the system's library.
    pub fn is_read_by_us(&self) -> bool {
        self.tpacket || self.choice.is_some() || self.has_engine()
    }

    /// Whether settings or the device's name ask for an engine other than packet sockets.
    pub fn has_engine(&self) -> bool {
        self.on_engine.is_some() || self.polled.is_some()
    }

    /// The size of the handle's ring in bytes, if settings or fanpcap choose it. With `None` the
    /// application, the engine or the system's library chooses the size. A larger ring loses fewer
    /// packets in bursts and while its reader is busy, but takes longer to create.
    pub fn buffer_size(&self) -> Option<i32> {
        if self.ring.is_some() {
            self.ring
        } else if self.has_engine() {
            None
        } else if self.choice.is_some() {
            Some(16 << 20)
        } else {
            self.tpacket.then_some(8 << 20)
        }
    }
}

impl Settings {
    /// Makes the plan of a handle on `device` from the settings and the application's call.
    /// `interfaces` are the names of the machine's interfaces, which show whether a variable is
    /// ambiguous. `compile` gets only the steering program of the handle's group.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn plan(
        &self,
        device: &Device,
        call: Option<&FanoutCall>,
        interfaces: &[String],
        compile: Compile<'_>,
    ) -> Result<Plan, Report> {
        if device.names_none() {
            return Err(self.no_device(device));
        }
        let mut choice = None;
        let by_name = device.engine().is_some_and(Driver::is_rings);
        let mut tpacket = device.is_part() || device.is_fallback();
        let (mut on_engine, mut polled) = (None, None);
        let mut placement = None;
        let mut waits_if_gone = None;
        let mut ring = None;
        for part in device.parts() {
            let handle = Handle {
                asked: self.asked(device, part),
                call,
                interfaces,
                compile,
            };
            let joined = handle.choice()?;
            handle.refuse_unhonoured()?;
            choice = choice.or(joined);
            tpacket |= handle.asked.engine().is_some_and(Driver::is_rings);
            on_engine = on_engine.or(handle.asked.on_engine());
            polled = polled.or(handle.asked.polled());
            placement = placement.or(handle.asked.placement());
            ring = ring.or(handle.asked.ring().and_then(Entry::size));
            let waits = handle.asked.gone().filter(|entry| entry.waits());
            if let Some(entry) = waits.filter(|_| device.parts().len() > 1) {
                return Err(waits_for_one(entry));
            }
            waits_if_gone = waits.map(Entry::origin);
        }
        tpacket |= waits_if_gone.is_some();
        let caplen = self
            .for_all(Key::Caplen)
            .and_then(|entry| entry.value.number());
        Ok(Plan {
            choice,
            caplen,
            ring,
            tpacket,
            by_name,
            on_engine,
            polled,
            waits_if_gone,
            placement,
        })
    }

    /// The report for a handle that names no device, if its group has no device either.
    fn no_device(&self, device: &Device) -> Report {
        let why = match self.default_group() {
            Some(group) => format!("group {group} has no member yet whose device could be used"),
            None => "no group is set".to_owned(),
        };
        let text = quote(device.text());
        let message = format!("{text} is the device of the group, and {why}");
        let fault = Fault::new("device-of-no-group", message);
        let fault = fault.hint("name a device, as in pfq:eth0");
        fault.at("device", 1, device.text())
    }

    /// The config file's mode or steering program for the default group.
    fn default_fanout(&self) -> Option<&Entry> {
        let [mode, program] = [Key::Fanout, Key::Program];
        find(&self.file, mode, &Target::All).or_else(|| find(&self.file, program, &Target::All))
    }
}

/// One device of a handle, with everything that determines the plan for this device.
struct Handle<'a> {
    asked: Asked<'a>,
    call: Option<&'a FanoutCall>,
    interfaces: &'a [String],
    compile: Compile<'a>,
}

impl<'a> Handle<'a> {
    fn choice(&self) -> Result<Option<GroupChoice>, Report> {
        let (group, origin) = if let Some(call) = self.call {
            (call.group, CALL.to_owned())
        } else if let Some((group, entry)) = self.group_entry()? {
            (Group::Number(group), entry.origin())
        } else {
            return self.refuse_mode_without_group().map(|()| None);
        };
        let asked = self.fanout(group)?;
        let is_default = asked.is_none();
        let default = || Fanout::Program(Script::default_mode());
        let mut fanout = asked.unwrap_or_else(default);
        if let Some(engine) = self.asked.steering_engine() {
            fanout = self.steered(group, fanout, engine)?;
        }
        let (mode, steering, weight, class) = match fanout {
            Fanout::Mode(mode) => (mode, None, None, 0),
            Fanout::Program(script) => {
                let (steering, class) = self.compiled(&script)?;
                (script.mode(), Some(steering), script.weight(), class)
            }
        };
        Ok(Some(GroupChoice {
            group,
            mode,
            steering,
            weight,
            class,
            is_default,
            origin,
            name: self
                .asked
                .settings
                .for_all(Key::Member)
                .and_then(Entry::name),
        }))
    }

    fn group_entry(&self) -> Result<Option<(u16, &'a Entry)>, Report> {
        let device = Target::Device(self.asked.part.name.clone());
        let entry = self
            .in_environment(Key::Group)?
            .or_else(|| find(&self.asked.settings.file, Key::Group, &device))
            .or_else(|| find(&self.asked.settings.file, Key::Group, &Target::All));
        Ok(entry.and_then(|entry| Some((entry.value.group()?, entry))))
    }

    /// The mode or steering program that the call or a setting asks for; `None` if neither does.
    fn fanout(&self, group: Group) -> Result<Option<Fanout>, Report> {
        let of_call = self.call.and_then(|call| call.fanout.clone());
        match of_call {
            Some(fanout) => Ok(Some(fanout)),
            None => Ok(self.fanout_entry(group)?.map(Entry::fanout)),
        }
    }

    /// The entry with the mode or steering program of `group`; `None` if no setting gives it.
    fn fanout_entry(&self, group: Group) -> Result<Option<&'a Entry>, Report> {
        let of_group = || match group {
            Group::Number(number) => find(
                &self.asked.settings.file,
                Key::Fanout,
                &Target::Group(number),
            ),
            Group::New => None,
        };
        match self.in_environment(Key::Fanout)?.or_else(of_group) {
            Some(entry) => Ok(Some(entry)),
            None => self.default_fanout(group),
        }
    }

    /// The config file's entry for the default group, if `group` is the default group.
    fn default_fanout(&self, group: Group) -> Result<Option<&'a Entry>, Report> {
        let Some(entry) = self.asked.settings.default_fanout() else {
            return Ok(None);
        };
        match self.asked.settings.default_group() {
            None => Err(without_group(entry, DEF_GROUP)),
            Some(default) if group == Group::Number(default) => Ok(Some(entry)),
            Some(_) => Ok(None),
        }
    }

    /// The steering program of a group on an engine other than packet sockets.
    fn steered(&self, group: Group, fanout: Fanout, engine: Driver) -> Result<Fanout, Report> {
        let entry = self.fanout_entry(group).ok().flatten();
        let of_call = self.call.is_some_and(|call| call.fanout.is_some());
        on_engine::steered(fanout, engine).map_err(|fault| match entry {
            Some(entry) if !of_call => entry.blame(fault),
            _ => fault.at(CALL, 1, ""),
        })
    }

    /// The compiled steering program, and the class of the member that asks for it.
    fn compiled(&self, script: &Script) -> Result<(Arc<Steering>, u8), Report> {
        let class = script.class();
        if let Some(class) = class.filter(|_| self.asked.steering_engine().is_none()) {
            return Err(script.blame_class(class_needs_engine(class)));
        }
        let steering = (self.compile)(script)?;
        match class {
            Some(class) if !steering.classifies() => Err(script.blame_class(not_classified(class))),
            class => Ok((steering, class.unwrap_or(0))),
        }
    }

    /// Refuses a mode that no group uses, because the user expects an effect.
    fn refuse_mode_without_group(&self) -> Result<(), Report> {
        if let Some(entry) = self.variable(Key::Fanout)? {
            let hint = format!(
                "set PCAP_GROUP_{}=NUMBER too",
                shell_name(&self.asked.part.name)
            );
            return Err(without_group(entry, &hint));
        }
        let Settings { environment, file } = self.asked.settings;
        let groups = environment
            .iter()
            .chain(file)
            .any(|entry| entry.key == Key::Group);
        match (
            find(environment, Key::Fanout, &Target::All),
            self.asked.settings.default_fanout(),
        ) {
            (Some(entry), _) if !groups => Err(without_group(entry, "set PCAP_GROUP=NUMBER too")),
            (_, Some(entry)) => Err(without_group(entry, DEF_GROUP)),
            _ => Ok(()),
        }
    }

    /// The environment's entry for `key`: a variable for this device, or else a variable for all
    /// devices.
    fn in_environment(&self, key: Key) -> Result<Option<&'a Entry>, Report> {
        let for_all = || find(&self.asked.settings.environment, key, &Target::All);
        Ok(self.variable(key)?.or_else(for_all))
    }

    /// The variable of `key` that names this device, exactly or with `_` for characters that a
    /// shell does not allow in a variable's name.
    fn variable(&self, key: Key) -> Result<Option<&'a Entry>, Report> {
        let named = |name: &str| {
            find(
                &self.asked.settings.environment,
                key,
                &Target::Device(name.to_owned()),
            )
        };
        let name = &self.asked.part.name;
        let spelled = shell_name(name);
        let (None, Some(entry)) = (named(name), named(&spelled)) else {
            return Ok(named(name));
        };
        let also = |other: &&String| *other != name && shell_name(other) == spelled;
        match self.interfaces.iter().find(also) {
            None => Ok(Some(entry)),
            Some(other) => Err(ambiguous(entry, name, other)),
        }
    }

    /// Refuses settings for this handle that this version does not honour.
    fn refuse_unhonoured(&self) -> Result<(), Report> {
        let Settings { environment, file } = self.asked.settings;
        let engine = self.asked.engine();
        let takes_device = engine.is_some_and(Driver::takes_devices);
        let has_rings = takes_device || engine.is_some_and(Driver::is_polled);
        let refused = |&entry: &&Entry| match entry.key.row().honoured {
            Honoured::Always => false,
            Honoured::OnDevices => {
                !takes_device && self.asked.concerns(entry) && !entry.is_default()
            }
            Honoured::OnEngine => !has_rings && self.asked.concerns(entry) && !entry.is_default(),
        };
        let sent = |entry: &&Entry| {
            let asks = entry.key == Key::Outgoing && entry.value == Value::YesNo(true);
            asks && self.asked.concerns(entry)
        };
        let no_sent = engine.filter(|engine| !engine.captures_sent());
        if let Some((engine, entry)) = no_sent.zip(file.iter().find(sent)) {
            return Err(sends_nothing(entry, engine));
        }
        match environment.iter().chain(file).find(refused) {
            None => Ok(()),
            Some(entry) => Err(needs_engine(entry)),
        }
    }
}

impl Entry {
    fn fanout(&self) -> Fanout {
        let Value::Fanout(fanout) = &self.value else {
            return Fanout::Mode(ModeKind::Hash.into());
        };
        fanout.clone()
    }

    fn blame(&self, fault: Fault) -> Report {
        fault.report(self.place.clone())
    }

    fn name(&self) -> Option<String> {
        let Value::Name(name) = &self.value else {
            return None;
        };
        Some(name.clone())
    }
}

/// The report of a setting that the device's engine does not honour.
fn needs_engine(entry: &Entry) -> Report {
    let (name, target) = (&entry.name, entry.name.split_once('@'));
    let device = target.map_or("DEVICE", |(_, device)| device);
    let engines = Driver::of_devices();
    let message = format!("{} needs driver {engines}", quote(name));
    let hint = format!("add 'driver@{device} = {engines}', or remove {name}");
    entry.blame(Fault::new("setting-needs-xdp", message).hint(hint))
}

/// The report of `outgoing = yes` on an engine that takes only received packets.
fn sends_nothing(entry: &Entry, engine: Driver) -> Report {
    let name = &entry.name;
    let message = format!("the engine {engine} captures no packets that the host sends");
    let hint = format!("remove {name}, or choose the driver packet");
    entry.blame(Fault::new("sent-not-captured", message).hint(hint))
}

/// The report of `gone = wait` for a handle on several devices.
fn waits_for_one(entry: &Entry) -> Report {
    let message = format!("{} is for handles on one device", quote(&entry.name));
    let fault = Fault::new("wait-for-one-device", message);
    entry.blame(fault.hint("remove it, or open a handle for each device"))
}

fn without_group(entry: &Entry, hint: &str) -> Report {
    let message = format!("{} sets a mode, but no group is set", quote(&entry.name));
    entry.blame(Fault::new("mode-without-group", message).hint(hint))
}

fn ambiguous(entry: &Entry, name: &str, other: &str) -> Report {
    let message = format!("{} means {name} and {other}", quote(&entry.name));
    let hint = if entry.key == Key::Group {
        format!("write 'group_{name} = NUMBER' in the config file")
    } else {
        "write 'fanout@GROUP = MODE' in the config file".to_owned()
    };
    entry.blame(Fault::new("variable-ambiguous", message).hint(hint))
}

const DEF_GROUP: &str = "add 'def_group = NUMBER', or write 'fanout@NUMBER'";

mod explain;
pub use explain::{Explained, Ignored, Origins, Reason};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod engine_tests;
#[cfg(test)]
mod placement_tests;
