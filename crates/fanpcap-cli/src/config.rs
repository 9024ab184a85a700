//! `fanpcap config`: the settings that apply to a device, and the settings that have no effect.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueHint};
use fanpcap::request::Request;
use fanpcap_config::device::ANY;
use fanpcap_config::report::Report;
use fanpcap_config::settings::{Environment, Explained, Group, Ignored, Membership, Settings};
use fanpcap_linux::{interface, process};
use fanpcap_terminal::streams;

use crate::default_mode::DefaultMode;
use crate::lang::Pcap;

mod json;
mod text;

/// Shows what applications get on a device, from which setting, and which settings have no effect
///
/// It reads the environment and the config file as the library does in an application that is
/// started from here: group, mode, snapshot length, driver, each with the variable or the line that
/// it is from. For a group without a mode it shows the one that a new member gets, and why. It
/// changes nothing, and opens no device. The exit status is 1 if a setting is wrong, so that the
/// library would refuse a handle.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The device, as an application names it; all devices if there is none
    #[arg(value_name = "DEV", value_hint = ValueHint::Other)]
    device: Option<String>,
    /// Print one JSON object (docs/config-json.md)
    #[arg(long)]
    json: bool,
}

/// Everything that the command prints.
pub(crate) struct Overview {
    /// The config file that is read, and whether PCAP_CONFIG names it.
    file: Option<(String, bool)>,
    /// The user asked for one device.
    is_one: bool,
    /// Each device, or the error of the settings as a whole.
    pub(crate) devices: Result<Vec<Entry>, Report>,
    /// Settings that have no effect on any device.
    ignored: Vec<Ignored>,
}

/// A device.
pub(crate) struct Entry {
    /// Its settings.
    pub(crate) explained: Explained,
    /// The network device exists.
    is_there: bool,
    /// The mode where the settings give none.
    default: Option<DefaultMode>,
}

impl Overview {
    /// The errors, each once.
    pub(crate) fn errors(&self) -> Vec<&Report> {
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

    /// Settings without effect; for a single device also those that another setting overrides on
    /// it.
    pub(crate) fn ignored(&self) -> Vec<&Ignored> {
        let devices = self.devices.iter().flatten();
        let of_devices = devices.flat_map(|device| &device.explained.ignored);
        let mut ignored: Vec<&Ignored> = Vec::new();
        for one in of_devices.filter(|_| self.is_one).chain(&self.ignored) {
            if !ignored.contains(&one) {
                ignored.push(one);
            }
        }
        ignored
    }
}

/// Runs `fanpcap config`.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let told = look(arguments.device.as_deref());
    let text = match arguments.json {
        true => json::line(&told)?,
        false => text::page(&told),
    };
    streams::print(&text)?;
    Ok(match told.errors().is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Reads the settings as the library does and resolves them for the devices.
pub(crate) fn look(device: Option<&str>) -> Overview {
    let environment = Environment::whole(process::is_secure());
    let settings = Settings::load(&environment);
    let mut interfaces = interface::names();
    interfaces.sort();
    let ignored = settings.as_ref().map_or_else(
        |_| Vec::new(),
        |settings| settings.without_effect(&environment, &interfaces),
    );
    let names = match (device, &settings) {
        (Some(device), _) => vec![device.to_owned()],
        (None, Ok(settings)) => all(settings, &interfaces),
        (None, Err(_)) => vec![ANY.to_owned()],
    };
    let pcap = Pcap::default();
    let compile = |expression: &str| pcap.compile(expression);
    let mut devices = Ok(Vec::new());
    for name in names {
        let told = Request::of(&name, settings.clone()).explain(&compile);
        devices = devices.and_then(|mut devices: Vec<Entry>| {
            devices.extend(
                told?
                    .into_iter()
                    .map(|explained| seen(explained, &interfaces)),
            );
            Ok(devices)
        });
    }
    let file = Settings::config_file(&environment).map(|path| {
        let is_named = environment
            .variables
            .iter()
            .any(|(name, value)| name.as_encoded_bytes() == b"PCAP_CONFIG" && !value.is_empty());
        (path.display().to_string(), is_named)
    });
    Overview {
        file,
        is_one: device.is_some(),
        devices,
        ignored,
    }
}

fn seen(explained: Explained, interfaces: &[String]) -> Entry {
    let name = explained.device.as_str();
    let exists = |name: &str| name == ANY || interfaces.iter().any(|it| it == name);
    let base = name.rsplit_once(':').map(|(base, _)| base);
    let base = base.filter(|base| !exists(name) && exists(base));
    let is_there = exists(name) || base.is_some();
    let default = explained.plan.as_ref().ok();
    let default = default.and_then(|plan| plan.membership.as_ref());
    let default = default.filter(|joined| joined.is_default).map(|joined| {
        let group = match joined.group {
            Group::Number(number) => Some(number),
            Group::New => None,
        };
        DefaultMode::of(Some(base.unwrap_or(name)), group)
    });
    Entry {
        default,
        explained,
        is_there,
    }
}

/// The interfaces, their virtual devices that the settings name, and the device that stands for
/// all.
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

/// The mode of a membership, or the beginning of its steering program. `default` is its mode where
/// the settings give none.
pub(crate) fn mode(joined: &Membership, default: Option<&DefaultMode>) -> String {
    if let Some(default) = default {
        return default.text.clone();
    }
    let mode = joined.mode.to_string();
    let Some(steering) = &joined.steering else {
        return mode;
    };
    let options = mode.find('+').map_or("", |at| &mode[at..]);
    let weight = joined.weight.map(|weight| format!("+weight={weight}"));
    let weight = weight.unwrap_or_default();
    let class = match joined.class {
        0 => String::new(),
        class => format!("+class={class}"),
    };
    format!("{}{options}{weight}{class}", steering.title())
}

fn group(joined: &Membership) -> String {
    match joined.group {
        Group::Number(number) => number.to_string(),
        Group::New => "new".to_owned(),
    }
}
