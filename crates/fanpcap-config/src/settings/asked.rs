//! Finds the settings that concern a device, and the engine that they ask for.

use super::Settings;
use super::entry::{Entry, Target};
use super::environment::{self, shell_name};
use super::keys::Key;
use super::on_engine::{OnEngine, Polled, Steal};
use super::value::Value;
use crate::device::{Device, Part};
use crate::driver::Driver;

/// One device of a handle, with the settings.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) settings: &'a Settings,
    pub(super) device: &'a Device,
    pub(super) part: &'a Part,
}

impl Settings {
    /// Whether a handle on `device` is for an engine other than packet sockets.
    pub fn is_on_engine(&self, device: &Device) -> bool {
        let mut all = device.parts().iter();
        all.any(|part| self.asked(device, part).steering_engine().is_some())
    }

    /// The engine of a handle on `device`, if the packets come from a poller.
    pub fn polled(&self, device: &Device) -> Option<Driver> {
        let mut all = device.parts().iter();
        all.find_map(|part| Some(self.asked(device, part).polled()?.engine))
    }

    /// The settings of one device of a handle.
    pub(super) fn asked<'a>(&'a self, device: &'a Device, part: &'a Part) -> Asked<'a> {
        Asked {
            settings: self,
            device,
            part,
        }
    }
}

impl<'a> Asked<'a> {
    /// The engine that the device's name asks for, or else the engine that settings ask for.
    pub(super) fn engine(&self) -> Option<Driver> {
        let of_settings = || self.driver().and_then(Entry::engine);
        let named = self.device.engine().or_else(of_settings);
        named.map(Driver::engine)
    }

    /// The plan for the device's engine, if the engine attaches to devices.
    pub(super) fn on_engine(&self) -> Option<OnEngine> {
        let engine = self.engine().filter(|engine| engine.takes_devices());
        let engine = engine.filter(|_| !self.device.is_fallback())?;
        let steal = match self.of_device(Key::Steal).map(|entry| &entry.value) {
            Some(Value::Steal(steal)) => *steal,
            _ => Steal::No,
        };
        Some(OnEngine {
            engine,
            steal,
            outgoing: self.outgoing().unwrap_or(steal == Steal::No),
            origin: self.origin_of_engine(),
        })
    }

    /// The plan for the device's engine, if a poller takes the packets.
    pub(super) fn polled(&self) -> Option<Polled> {
        let engine = self.engine().filter(|engine| engine.is_polled());
        let engine = engine.filter(|_| !self.device.is_fallback())?;
        Some(Polled {
            engine,
            outgoing: self.outgoing().unwrap_or(engine.captures_sent()),
            origin: self.origin_of_engine(),
        })
    }

    /// The engine, if all modes of its groups are steering programs.
    pub(super) fn steering_engine(&self) -> Option<Driver> {
        let on_engine = self.on_engine().map(|it| it.engine);
        on_engine.or_else(|| self.polled().map(|it| it.engine))
    }

    /// Whether to capture packets that the host sends, if a setting says so.
    fn outgoing(&self) -> Option<bool> {
        let Value::YesNo(outgoing) = self.of_device(Key::Outgoing)?.value else {
            return None;
        };
        Some(outgoing)
    }

    /// The device's name or the setting that asks for the engine.
    fn origin_of_engine(&self) -> String {
        let of_name = self.device.engine().map(|_| self.device.text().to_owned());
        let origin = of_name.or_else(|| self.driver().map(Entry::origin));
        origin.unwrap_or_default()
    }

    /// The first setting of this key that concerns the device.
    pub(super) fn of_device(&self, key: Key) -> Option<&'a Entry> {
        let mut entries = self.settings.file.iter();
        entries.find(|entry| entry.key == key && self.concerns(entry))
    }

    /// The setting that names the engine for this device.
    pub(super) fn driver(&self) -> Option<&'a Entry> {
        self.by_environment_or_file(Key::Driver)
    }

    /// The setting that says what to do when this device is gone.
    pub(super) fn gone(&self) -> Option<&'a Entry> {
        self.by_environment_or_file(Key::Gone)
    }

    /// The setting of the ring's size on this device.
    pub(super) fn ring(&self) -> Option<&'a Entry> {
        self.by_environment_or_file(Key::Ring)
    }

    /// The first setting of this key that concerns the device. The environment takes precedence
    /// over the config file.
    fn by_environment_or_file(&self, key: Key) -> Option<&'a Entry> {
        let Settings { environment, file } = self.settings;
        let mut entries = environment.iter().chain(file);
        entries.find(|entry| entry.key == key && self.concerns(entry))
    }

    pub(super) fn concerns(&self, entry: &Entry) -> bool {
        match &entry.target {
            Target::Device(device) | Target::Channel(device, _) => self.is(device, entry),
            Target::All => true,
            Target::Group(_) => false,
        }
    }

    /// Whether the entry's `device` is this device, or the interface of this virtual device.
    fn is(&self, device: &str, entry: &Entry) -> bool {
        let spelled = |name: &str| entry.is_variable() && shell_name(name) == device;
        [&self.part.name, &self.part.base]
            .into_iter()
            .any(|name| name == device || spelled(name))
    }
}

impl Entry {
    pub(super) fn engine(&self) -> Option<Driver> {
        let Value::Driver(engine) = self.value else {
            return None;
        };
        Some(engine)
    }

    pub(super) fn size(&self) -> Option<i32> {
        let Value::Size(bytes) = self.value else {
            return None;
        };
        Some(bytes)
    }

    /// Whether the entry asks only for what packet sockets do anyway. Such an entry is not refused
    /// for packet sockets.
    pub(super) fn is_default(&self) -> bool {
        matches!(self.value, Value::Steal(Steal::No) | Value::YesNo(true))
    }

    /// Whether the entry asks to wait for a device that is gone.
    pub(super) fn waits(&self) -> bool {
        self.value == Value::Waits(true)
    }

    pub(super) fn origin(&self) -> String {
        let place = &self.place;
        match self.is_variable() {
            true => place.text.clone(),
            false => format!("{}:{}", place.source, place.line),
        }
    }

    pub(super) fn is_variable(&self) -> bool {
        self.place.source == environment::SOURCE
    }
}
