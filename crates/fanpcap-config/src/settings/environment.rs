//! The environment: a snapshot, the variables that are settings, and the variables that only look
//! like settings.

use super::entry::{self, Entries, Entry, Target};
use super::keys::{KEYS, Key, Row, SENDING, Scope, VLAN};
use super::value;
use crate::report::{Fault, Place, Report, did_you_mean, offset_in, quote};
use crate::source::Source;
use fanpcap_linux::process::environment;
use fanpcap_steer::nearest::{nearest, nearest_within};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// The properties of a process on which settings depend.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Names and values of the variables.
    pub variables: Vec<(OsString, OsString)>,
    /// Whether the process has raised privileges (AT_SECURE). If so, all variables are ignored.
    pub secure: bool,
    /// The machine's config file.
    pub system_config: PathBuf,
}

impl Environment {
    /// The variables of the process that are or look like settings. getenv(3) for each known name
    /// would not find a variable that only looks like a setting.
    pub fn of_process(secure: bool) -> Environment {
        let matters = |name: &OsStr| {
            let name = name.as_encoded_bytes();
            name.starts_with(b"PCAP_") || name.starts_with(b"PFQ_") || name == b"HOME"
        };
        Environment {
            variables: environment::variables(matters),
            secure,
            system_config: PathBuf::from("/etc/pcap.conf"),
        }
    }

    /// A snapshot with all variables. With it, the library finds every name that looks like a
    /// setting.
    pub fn whole(secure: bool) -> Environment {
        Environment {
            variables: std::env::vars_os().collect(),
            ..Environment::of_process(secure)
        }
    }

    /// A variable's value; `None` if the variable is ignored, not set or empty.
    pub(super) fn value(&self, name: &str) -> Option<&OsStr> {
        let (_, value) = self.set().find(|(found, _)| *found == name)?;
        Some(value)
    }

    /// The variables that are not ignored and not empty.
    fn set(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let variables = self
            .variables
            .iter()
            .map(|(name, value)| (&**name, &**value));
        variables.filter(|(_, value)| !self.secure && !value.is_empty())
    }
}

/// Parses the variables that are settings.
pub fn parse(environment: &Environment) -> Result<Vec<Entry>, Report> {
    let mut entries = Entries::default();
    for (name, value) in environment.set() {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let text = format!("{name}={value}");
        if let Some(entry) = entry(&name, &text).map_err(|fault| fault.at(SOURCE, 1, &text))? {
            entries.add(entry)?;
        }
    }
    Ok(entries.into_list())
}

pub(super) fn place_of_value(name: &str, value: &OsStr) -> Place {
    let text = format!("{name}={}", value.to_string_lossy());
    Place::new(SOURCE, 1, &text, name.len() + 1)
}

/// A device's name as part of a variable's name, after PCAP_GROUP_. `_` replaces each character
/// that a shell does not allow in a variable's name.
pub fn shell_name(device: &str) -> String {
    let spelled = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    device.chars().map(spelled).collect()
}

/// Parses the variable `name`; `text` is the variable with its value. `None` if it is not a
/// setting.
fn entry(name: &str, text: &str) -> Result<Option<Entry>, Fault> {
    let value = text[name.len() + 1..].trim();
    let at = offset_in(text, value);
    if name.starts_with("PFQ_") || name == "PCAP_FANOUT_ID" {
        return Err(old(name));
    }
    let Some(rest) = name.strip_prefix("PCAP_") else {
        return Ok(None);
    };
    // PCAP_PF_RING* belongs to PF_RING's engine. PCAP_CONFIG was read before.
    if rest.starts_with("PF_RING") || rest == "CONFIG" {
        return Ok(None);
    }
    if rest == "HUB" {
        return hub(value).map_err(|fault| fault.shift(at));
    }
    let found = target(rest).map_err(|fault| fault.shift(offset_in(name, rest)))?;
    let Some((key, target)) = found else {
        return near_miss(name, rest).map_or(Ok(None), Err);
    };
    let value = Source::within(SOURCE, 1, text, at, value.len());
    let value = key.value(value).map_err(|fault| fault.shift(at))?;
    let place = Place::new(SOURCE, 1, text, 0);
    Ok(Some(Entry {
        name: name.to_owned(),
        key,
        target,
        value,
        place,
    }))
}

/// The key and target of a variable whose name is PCAP_ followed by `rest`.
fn target(rest: &str) -> Result<Option<(Key, Target)>, Fault> {
    if let Some(row) = KEYS.iter().find(|row| row.variables.contains(&rest)) {
        return Ok(Some((row.key, Target::All)));
    }
    let family =
        |row: &'static Row| Some((row, rest.strip_prefix(row.family?)?.strip_prefix('_')?));
    let Some((row, device)) = KEYS.iter().find_map(family) else {
        return Ok(None);
    };
    let at = offset_in(rest, device);
    let target = match row.scope {
        Scope::Channel => entry::channel(device, '_'),
        Scope::All | Scope::AllOrGroup | Scope::Device => value::device(device).map(Target::Device),
    };
    target
        .map(|target| Some((row.key, target)))
        .map_err(|fault| fault.shift(at))
}

/// The possible ends of a variable's name after `PCAP_`, without devices.
fn names() -> impl Iterator<Item = &'static str> {
    let for_all = KEYS.iter().flat_map(|row| row.variables.iter().copied());
    for_all
        .chain(READ_APART)
        .chain(of_devices().filter_map(|row| row.family))
}

/// The keys whose variables need a device.
fn of_devices() -> impl Iterator<Item = &'static Row> {
    KEYS.iter()
        .filter(|row| row.variables.is_empty() && row.family.is_some())
}

/// Checks PCAP_HUB, whose values all mean "no hub" in this version.
fn hub(value: &str) -> Result<Option<Entry>, Fault> {
    match value {
        "off" | "auto" => Ok(None),
        _ => Err(
            Fault::new("hub-not-in-version", "the hub is not in this version")
                .hint("write off, or unset PCAP_HUB"),
        ),
    }
}

/// Explains why the variable `name` has no effect although it looks like a setting: the reason, the
/// name that was meant, and its key. The caller has checked that `name` is set and that parsing did
/// not refuse it.
pub(super) fn stranger(name: &str) -> Option<(String, String, Option<Key>)> {
    let upper = name.to_ascii_uppercase();
    let rest = upper.strip_prefix("PCAP_")?;
    let is_read = name.starts_with("PCAP_") && READ_APART.contains(&rest);
    if is_read || rest.starts_with("PF_RING") {
        return None;
    }
    let setting = target(rest).ok().flatten();
    if name.starts_with("PCAP_") && setting.is_some() {
        return None;
    }
    let (near, key) = match setting {
        Some((key, _)) => (Some(with_device(name, rest)), Some(key)),
        None => {
            let other = OTHER_WORDS.iter().find(|(word, _)| rest.starts_with(word));
            let near = nearest(rest, names()).or(other.map(|(_, meant)| *meant));
            let is_it = |row: &&Row| near.is_some_and(|it| row.variables.contains(&it));
            let row = KEYS.iter().find(is_it).or_else(|| of_device(near?));
            (near.map(spelled), row.map(|row| row.key))
        }
    };
    let hint = match near {
        Some(near) => did_you_mean(&format!("PCAP_{near}")),
        None => format!(
            "fanpcap's variables are PCAP_{}",
            names().collect::<Vec<_>>().join(", PCAP_")
        ),
    };
    let why = format!("fanpcap has no variable called {}", quote(name));
    Some((why, hint, key))
}

/// A setting's name after `PCAP_`, in capitals except for the device. `rest` is the end of `name`
/// in capitals.
fn with_device(name: &str, rest: &str) -> String {
    let is_before = |family: &&str| {
        let device = rest.strip_prefix(family);
        device.is_some_and(|it| it.starts_with('_'))
    };
    let family = KEYS.iter().filter_map(|row| row.family).find(is_before);
    let at = family.map_or(rest.len(), str::len);
    format!("{}{}", &rest[..at], &name[name.len() - rest.len() + at..])
}

/// The row of a key whose variables need a device.
fn of_device(family: &str) -> Option<&'static Row> {
    of_devices().find(|row| row.family == Some(family))
}

/// A variable's name after `PCAP_`, with `_dev` if it needs a device.
fn spelled(name: &str) -> String {
    match of_device(name).map(|row| row.scope) {
        Some(Scope::Channel) => format!("{name}_dev_N"),
        Some(_) => format!("{name}_dev"),
        None => name.to_owned(),
    }
}

/// The fault of a variable that misspells one of our names. Names that differ more, such as
/// PCAP_SNAPLEN, are no faults, because they may belong to other applications.
fn near_miss(name: &str, rest: &str) -> Option<Fault> {
    let whole = || nearest_within(1, rest, names()).map(spelled);
    let family = || {
        let (head, device) = rest.split_once('_')?;
        let near = nearest_within(1, head, KEYS.iter().filter_map(|row| row.family))?;
        Some(format!("{near}_{device}"))
    };
    let meant = |near| did_you_mean(&format!("PCAP_{near}"));
    let near = || whole().or_else(family).map(meant);
    let hint = near()
        .or_else(|| of_file(rest))
        .or_else(|| of_no_device(rest).map(meant))?;
    let message = format!("unknown variable {}", quote(name));
    Some(Fault::new("variable-unknown", message).hint(hint))
}

/// Advice if `rest` is a key that only the config file has for one device, with or without a
/// device.
fn of_file(rest: &str) -> Option<String> {
    let with_device = format!("{rest}_DEV");
    let found = entry::behind_underscore(0, rest);
    let (row, target) = found.or_else(|| entry::behind_underscore(0, &with_device))?;
    if !matches!(row.scope, Scope::Device | Scope::Channel) || row.family.is_some() {
        return None;
    }
    let for_all = row.variables.first();
    let for_all = for_all.map(|name| format!("set PCAP_{name} for every device, or "));
    let key = entry::with_target(row, target);
    let for_all = for_all.unwrap_or_default();
    Some(format!("{for_all}write '{key} = VALUE' into pcap.conf"))
}

/// The variable that was meant, if `rest` adds a device to a variable that takes no device.
fn of_no_device(rest: &str) -> Option<String> {
    let variables = KEYS
        .iter()
        .flat_map(|row| row.variables.iter().map(move |name| (row.family, *name)));
    let mut takes_none = variables.filter(|(family, name)| *family != Some(name));
    let is_named = |name: &str| {
        rest.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('_'))
    };
    let (_, name) = takes_none.find(|(_, name)| is_named(name))?;
    Some(name.to_owned())
}

/// The fault of a variable that only older versions have.
fn old(name: &str) -> Fault {
    let instead = match name {
        "PFQ_CONFIG" => "set PCAP_CONFIG".to_owned(),
        "PFQ_GROUP" | "PFQ_DEF_GROUP" | "PCAP_FANOUT_ID" => "set PCAP_GROUP".to_owned(),
        "PFQ_FANOUT" | "PFQ_LANG" | "PFQ_LANG_LIT" => {
            "set PCAP_FANOUT to the program, or to a mode such as hash".to_owned()
        }
        "PFQ_LANG_SRC" => "set PCAP_FANOUT=file:PATH".to_owned(),
        "PFQ_CAPLEN" => "set PCAP_CAPLEN".to_owned(),
        "PFQ_VLAN" => VLAN.to_owned(),
        _ if name.starts_with("PFQ_TX_") => SENDING.to_owned(),
        _ => match name.strip_prefix("PFQ_GROUP_") {
            Some(device) => format!("set PCAP_GROUP_{device}"),
            None => "unset it: it has no effect any more".to_owned(),
        },
    };
    let message = format!("variable {} is no longer known", quote(name));
    Fault::new("variable-old", message).hint(instead)
}

/// The name of the environment as the place of a mistake.
pub(super) const SOURCE: &str = "environment";
/// Variables, without `PCAP_`, that are not settings of a handle.
const READ_APART: [&str; 2] = ["CONFIG", "HUB"];

/// Words in other software's variables, each with our name for the same setting.
const OTHER_WORDS: [(&str, &str); 7] = [
    ("CLUSTER", "GROUP"),
    ("MODE", "FANOUT"),
    ("ALGO", "FANOUT"),
    ("BALANCE", "FANOUT"),
    ("SNAPLEN", "CAPLEN"),
    ("BUFFER", "RING"),
    ("ENGINE", "DRIVER"),
];

#[cfg(test)]
mod tests;
