//! The settings in effect on each device with their origins, and the settings without effect.

mod mode;

use fanpcap_config::device::ANY;
use fanpcap_config::report::Report;
use fanpcap_config::settings::{Environment, Explained, Group, Ignored, Key, Reason, Settings};
use fanpcap_config::steering::{self, Overridden, PcapCompiler};
use fanpcap_linux::{interface, process};

use crate::request::Request;
pub use mode::{DefaultMode, mode_text};

/// The settings in effect on devices.
pub struct Overview {
    /// The config file that is read, and whether the variable PCAP_CONFIG names it.
    pub file: Option<(String, bool)>,
    /// Whether the caller asked for a single device.
    pub is_one: bool,
    /// Each device, or the error of the settings as a whole.
    pub devices: Result<Vec<Entry>, Report>,
    /// Settings that have no effect on any device.
    ignored: Vec<Ignored>,
}

/// A device, and the settings in effect on it.
pub struct Entry {
    /// The settings in effect on the device.
    pub explained: Explained,
    /// Whether the network device exists.
    pub is_there: bool,
    /// The device that an engine opens: for a virtual device, the device that it is on.
    pub base: String,
    /// The mode that a handle gets if the settings give none.
    pub default: Option<DefaultMode>,
}

impl Overview {
    /// Reads the settings as the library does and resolves them for `device`, or for all devices.
    /// `awaited` returns the devices that are gone and for which members wait: the settings of
    /// these devices apply to the members.
    pub fn read(
        device: Option<&str>,
        awaited: impl Fn() -> Vec<String>,
        pcap: PcapCompiler<'_>,
    ) -> Self {
        let environment = Environment::whole(process::is_secure());
        let settings = Settings::load(&environment);
        let mut interfaces = interface::names();
        interfaces.sort();
        let without_effect = |interfaces: &[String]| match &settings {
            Ok(settings) => settings.without_effect(&environment, interfaces),
            Err(_) => Vec::new(),
        };
        let mut ignored = without_effect(&interfaces);
        if ignored.iter().any(|it| it.reason == Reason::NoSuchDevice) {
            // Members that wait keep their settings. No hint is on a device that is gone.
            let still = without_effect(&[interfaces.clone(), awaited()].concat());
            ignored.retain(|it| {
                let mut still = still.iter().map(|it| (&it.place, &it.setting, it.reason));
                still.any(|still| still == (&it.place, &it.setting, it.reason))
            });
        }
        let names = match (device, &settings) {
            (Some(device), _) => vec![device.to_owned()],
            (None, Ok(settings)) => all(settings, &interfaces),
            (None, Err(_)) => vec![ANY.to_owned()],
        };
        let mut devices = Ok(Vec::new());
        for name in names {
            let told = Request::of(&name, settings.clone()).explain(pcap);
            devices = devices.and_then(|mut devices: Vec<Entry>| {
                devices.extend(
                    told?
                        .into_iter()
                        .map(|explained| seen(explained, &interfaces, pcap)),
                );
                Ok(devices)
            });
        }
        let file = Settings::config_file(&environment).map(|path| {
            let is_named = environment.variables.iter().any(|(name, value)| {
                name.as_encoded_bytes() == b"PCAP_CONFIG" && !value.is_empty()
            });
            (path.display().to_string(), is_named)
        });
        Self {
            file,
            is_one: device.is_some(),
            devices,
            ignored,
        }
    }

    /// The errors, without duplicates.
    pub fn errors(&self) -> Vec<&Report> {
        let devices = match &self.devices {
            Err(report) => return vec![report],
            Ok(devices) => devices.iter(),
        };
        let mut errors: Vec<&Report> = Vec::new();
        for report in devices.filter_map(|device| device.explained.plan.as_ref().err()) {
            if !errors.contains(&report) {
                errors.push(report);
            }
        }
        errors
    }

    /// Settings without effect, and steering functions that later ones override. If the caller
    /// asked for a single device, also returns the settings that another setting overrides.
    pub fn ignored(&self) -> Vec<&Ignored> {
        let devices = self.devices.iter().flatten();
        let of_devices = devices.flat_map(|device| &device.explained.ignored);
        let of_device = |it: &&Ignored| self.is_one || it.reason == Reason::LaterSteering;
        let mut ignored: Vec<&Ignored> = Vec::new();
        for one in of_devices.filter(of_device).chain(&self.ignored) {
            if !ignored.contains(&one) {
                ignored.push(one);
            }
        }
        ignored
    }
}

fn seen(mut explained: Explained, interfaces: &[String], pcap: PcapCompiler<'_>) -> Entry {
    let name = explained.device.as_str();
    let exists = |name: &str| name == ANY || interfaces.iter().any(|it| it == name);
    let base = name.rsplit_once(':').map(|(base, _)| base);
    let base = base.filter(|base| !exists(name) && exists(base));
    let is_there = exists(name) || base.is_some();
    let plan = explained.plan.as_ref().ok();
    let is_polled = plan.is_some_and(|plan| plan.polled.is_some());
    let default = plan.and_then(|plan| plan.choice.as_ref());
    let default = default.filter(|joined| joined.is_default).map(|joined| {
        if is_polled {
            return DefaultMode::of_poller();
        }
        let group = match joined.group {
            Group::Number(number) => Some(number),
            Group::New => None,
        };
        DefaultMode::of(Some(base.unwrap_or(name)), group, pcap)
    });
    let overridden = overridden(&explained);
    explained.ignored.extend(overridden);
    Entry {
        base: base.unwrap_or(&explained.device).to_owned(),
        default,
        explained,
        is_there,
    }
}

/// The functions of the device's steering program that select no member.
fn overridden(explained: &Explained) -> Vec<Ignored> {
    let choice = explained
        .plan
        .as_ref()
        .ok()
        .and_then(|it| it.choice.as_ref());
    let Some(program) = choice.and_then(|choice| choice.steering.as_ref()) else {
        return Vec::new();
    };
    // An origin with a value is a variable.
    let origin = explained.origins.mode.as_ref();
    let place = origin.filter(|origin| !origin.contains('='));
    let place = place.map_or("environment", String::as_str);
    let found = steering::overridden(program.text()).into_iter();
    let ignored = |it: Overridden| {
        let (line, column) = it.warning.position(program.text());
        Ignored {
            setting: it.call,
            key: Some(Key::Fanout),
            place: place.to_owned(),
            why: format!(
                "line {line}, column {column} of the steering program: {}",
                it.warning.message
            ),
            reason: Reason::LaterSteering,
            hint: it.warning.hint,
        }
    };
    found.map(ignored).collect()
}

/// The interfaces, the virtual devices on them that settings name, and `any`.
fn all(settings: &Settings, interfaces: &[String]) -> Vec<String> {
    let mut names = interfaces.to_vec();
    let is_on_one = |name: &String| {
        let base = name.rsplit_once(':').map(|(base, _)| base);
        base.is_some_and(|base| base == ANY || interfaces.iter().any(|it| it == base))
    };
    names.extend(settings.virtual_devices().into_iter().filter(is_on_one));
    names.push(ANY.to_owned());
    names.sort();
    names.dedup();
    names
}
