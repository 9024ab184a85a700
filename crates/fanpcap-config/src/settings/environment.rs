//! The environment: its snapshot, the variables that are settings, and those that look like one.

use super::keys::{self, Entries, Entry, Key, SENDING, Target, VLAN};
use crate::report::{Fault, Place, Report, offset_in, quote};
use crate::source::Source;
use fanpcap_linux::process::environment;
use fanpcap_steer::nearest::{nearest, nearest_within};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What settings read of a process's surroundings.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Names and values of the variables.
    pub variables: Vec<(OsString, OsString)>,
    /// The process has raised privileges (AT_SECURE): no variable counts.
    pub secure: bool,
    /// The machine's config file.
    pub system_config: PathBuf,
}

impl Environment {
    /// The process's own environment, as far as it can matter: also names that are none of ours but
    /// look like it, which asking for known names by getenv(3) would not find.
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

    /// The same with all variables, so that those which only look like settings are seen, too.
    pub fn whole(secure: bool) -> Environment {
        Environment {
            variables: std::env::vars_os().collect(),
            ..Environment::of_process(secure)
        }
    }

    /// A variable's value; an empty one counts as not set.
    pub(super) fn value(&self, name: &str) -> Option<&OsStr> {
        let (_, value) = self.set().find(|(found, _)| *found == name)?;
        Some(value)
    }

    /// The variables that count.
    fn set(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        let variables = self
            .variables
            .iter()
            .map(|(name, value)| (&**name, &**value));
        variables.filter(|(_, value)| !self.secure && !value.is_empty())
    }
}

/// Reads the variables that are settings.
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

/// The place of a variable's value.
pub(super) fn place_of_value(name: &str, value: &OsStr) -> Place {
    let text = format!("{name}={}", value.to_string_lossy());
    Place::new(SOURCE, 1, &text, name.len() + 1)
}

/// The name as the part after PCAP_GROUP_ spells it: `_` for what a shell can't put in a name.
pub fn shell_name(device: &str) -> String {
    let spelled = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    device.chars().map(spelled).collect()
}

/// Reads the variable `name`, which `text` shows with its value; `None`: it is no setting.
fn entry(name: &str, text: &str) -> Result<Option<Entry>, Fault> {
    let value = text[name.len() + 1..].trim();
    let at = offset_in(text, value);
    if name.starts_with("PFQ_") || name == "PCAP_FANOUT_ID" {
        return Err(old(name));
    }
    let Some(rest) = name.strip_prefix("PCAP_") else {
        return Ok(None);
    };
    // PCAP_PF_RING* belongs to PF_RING's engine; PCAP_CONFIG was read before.
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

/// What the part of a name after `PCAP_` sets.
fn target(rest: &str) -> Result<Option<(Key, Target)>, Fault> {
    if let Some((_, key)) = VARIABLES.into_iter().find(|(name, _)| *name == rest) {
        return Ok(Some((key, Target::All)));
    }
    let family = |(name, key)| Some((key, rest.strip_prefix(name)?.strip_prefix('_')?));
    let Some((key, device)) = FAMILIES.into_iter().find_map(family) else {
        return Ok(None);
    };
    let at = offset_in(rest, device);
    let target = if key == Key::Irq {
        keys::channel(device, '_')
    } else {
        keys::device(device).map(Target::Device)
    };
    target
        .map(|target| Some((key, target)))
        .map_err(|fault| fault.shift(at))
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

/// A variable that looks like one of ours and sets nothing: why, and what was meant. `name` is set, and not refused.
pub(super) fn stranger(name: &str) -> Option<(String, String)> {
    let upper = name.to_ascii_uppercase();
    let rest = upper.strip_prefix("PCAP_")?;
    let is_read = name.starts_with("PCAP_") && (rest == "CONFIG" || rest == "HUB");
    if is_read || rest.starts_with("PF_RING") {
        return None;
    }
    let is_setting = target(rest).is_ok_and(|found| found.is_some());
    if name.starts_with("PCAP_") && is_setting {
        return None;
    }
    let near = if is_setting {
        Some(rest)
    } else {
        let other = OTHER_WORDS.iter().find(|(word, _)| rest.starts_with(word));
        nearest(rest, WHOLE).or(other.map(|(_, meant)| *meant))
    };
    let hint = match near {
        Some(near) => format!("did you mean 'PCAP_{near}'?"),
        None => format!("ours are PCAP_{}", WHOLE.join(", PCAP_")),
    };
    Some((
        format!("no variable of ours is called {}", quote(name)),
        hint,
    ))
}

/// The refusal of a variable that is one slip away from one of ours; others may be other programs'
/// (PCAP_SNAPLEN is).
fn near_miss(name: &str, rest: &str) -> Option<Fault> {
    let whole = || match nearest_within(1, rest, WHOLE)? {
        "CHANNEL" => Some("CHANNEL_dev".to_owned()),
        "IRQ" => Some("IRQ_dev_N".to_owned()),
        near => Some(near.to_owned()),
    };
    let family = || {
        let (head, device) = rest.split_once('_')?;
        let near = nearest_within(1, head, FAMILIES.map(|(name, _)| name))?;
        Some(format!("{near}_{device}"))
    };
    let near = whole().or_else(family).or_else(|| of_no_device(rest))?;
    let message = format!("unknown variable {}", quote(name));
    let hint = format!("did you mean 'PCAP_{near}'?");
    Some(Fault::new("variable-unknown", message).hint(hint))
}

/// The variable that was meant, where a device is named that it does not take.
fn of_no_device(rest: &str) -> Option<String> {
    let takes_none = ["DEF_GROUP", "CAPLEN", "DRIVER"];
    let named = |name: &&str| {
        rest.strip_prefix(*name)
            .is_some_and(|rest| rest.starts_with('_'))
    };
    takes_none.into_iter().find(named).map(str::to_owned)
}

/// The refusal of a variable of older versions.
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
            None => "unset it, nothing reads it any more".to_owned(),
        },
    };
    let message = format!("variable {} is no longer known", quote(name));
    Fault::new("variable-old", message).hint(instead)
}

/// The environment's name in places.
pub(super) const SOURCE: &str = "environment";
/// The variables for all handles, without `PCAP_`.
const VARIABLES: [(&str, Key); 5] = [
    ("GROUP", Key::Group),
    ("DEF_GROUP", Key::Group),
    ("FANOUT", Key::Fanout),
    ("CAPLEN", Key::Caplen),
    ("DRIVER", Key::Driver),
];
/// Those that `_` and a device's name follow.
const FAMILIES: [(&str, Key); 4] = [
    ("GROUP", Key::Group),
    ("FANOUT", Key::Fanout),
    ("CHANNEL", Key::Channels),
    ("IRQ", Key::Irq),
];
/// What the part after `PCAP_` may have been meant to be.
const WHOLE: [&str; 9] = [
    "GROUP",
    "DEF_GROUP",
    "FANOUT",
    "CAPLEN",
    "DRIVER",
    "CONFIG",
    "HUB",
    "CHANNEL",
    "IRQ",
];

/// What the same is called elsewhere.
const OTHER_WORDS: [(&str, &str); 6] = [
    ("CLUSTER", "GROUP"),
    ("MODE", "FANOUT"),
    ("ALGO", "FANOUT"),
    ("BALANCE", "FANOUT"),
    ("SNAPLEN", "CAPLEN"),
    ("ENGINE", "DRIVER"),
];

#[cfg(test)]
mod tests {
    use super::super::Value;
    use super::*;
    use crate::mode::Kind;

    fn environment(variables: &[(&str, &str)]) -> Environment {
        let owned = |(name, value): &(&str, &str)| (name.into(), value.into());
        let variables = variables.iter().map(owned).collect();
        Environment {
            variables,
            secure: false,
            system_config: PathBuf::new(),
        }
    }

    fn refusal(name: &str, value: &str) -> (&'static str, usize, String) {
        let report = parse(&environment(&[(name, value)])).unwrap_err();
        let place = report.place.unwrap();
        assert_eq!(place.text, format!("{name}={value}"));
        (report.slug, place.column, report.hint.unwrap_or_default())
    }

    #[test]
    fn every_variable_with_its_target() {
        let device = |name: &str| Target::Device(name.to_owned());
        for (name, value, key, target, expected) in [
            ("PCAP_GROUP", "7", Key::Group, Target::All, Value::Number(7)),
            (
                "PCAP_DEF_GROUP",
                " 7 ",
                Key::Group,
                Target::All,
                Value::Number(7),
            ),
            (
                "PCAP_GROUP_eth0_1",
                "7",
                Key::Group,
                device("eth0_1"),
                Value::Number(7),
            ),
            (
                "PCAP_FANOUT",
                "rr",
                Key::Fanout,
                Target::All,
                Value::Mode(Kind::Lb.into()),
            ),
            (
                "PCAP_FANOUT_a",
                "qm",
                Key::Fanout,
                device("a"),
                Value::Mode(Kind::Qm.into()),
            ),
            (
                "PCAP_CAPLEN",
                "64",
                Key::Caplen,
                Target::All,
                Value::Number(64),
            ),
            (
                "PCAP_DRIVER",
                "pfq",
                Key::Driver,
                Target::All,
                Value::Engine("pfq"),
            ),
            (
                "PCAP_CHANNEL_eth0",
                "2",
                Key::Channels,
                device("eth0"),
                Value::Number(2),
            ),
            (
                "PCAP_IRQ_eth0_1",
                "0,2-3",
                Key::Irq,
                Target::Channel("eth0".to_owned(), 1),
                Value::Cpus(vec![(0, 0), (2, 3)]),
            ),
        ] {
            let mut entries = parse(&environment(&[(name, value)])).unwrap();
            let entry = entries.remove(0);
            let found = (entry.key, entry.target, entry.value);
            assert_eq!(found, (key, target, expected), "{name}");
            assert_eq!((entry.name.as_str(), entries.len()), (name, 0));
        }
    }

    #[test]
    fn what_is_not_ours_or_sets_nothing_is_left_alone() {
        let variables = [
            ("PCAP_GROUP", ""),
            ("PFQ_GROUP", ""),
            ("PCAP_PF_RING_CLUSTER_ID", "5"),
            ("PCAP_PF_RING", "x"),
            ("PCAP_CONFIG", "/dev/null"),
            ("PCAP_HUB", "off"),
            ("PCAP_SNAPLEN", "x"),
            ("PCAP_TEMPDIR", "x"),
            ("PCAP_INTERFACE_NAME", "x"),
            ("HOME", "/root"),
            ("GROUP", "x"),
        ];
        assert_eq!(parse(&environment(&variables)), Ok(Vec::new()));
    }

    #[test]
    fn with_raised_privileges_nothing_counts() {
        let wrong = environment(&[("PCAP_GROUP", "wrong")]);
        assert_eq!(parse(&wrong).unwrap_err().slug, "not-a-number");
        assert_eq!(
            parse(&Environment {
                secure: true,
                ..wrong
            }),
            Ok(Vec::new())
        );
    }

    #[test]
    fn near_misses_are_refused_with_the_right_name() {
        for (name, near) in [
            ("PCAP_GRUOP", "PCAP_GROUP"),
            ("PCAP_group", "PCAP_GROUP"),
            ("PCAP_DEFGROUP", "PCAP_DEF_GROUP"),
            ("PCAP_FAN_OUT", "PCAP_FANOUT"),
            ("PCAP_CONFG", "PCAP_CONFIG"),
            ("PCAP_HUBS", "PCAP_HUB"),
            ("PCAP_CHANNEL", "PCAP_CHANNEL_dev"),
            ("PCAP_IRQ", "PCAP_IRQ_dev_N"),
            ("PCAP_GROUPS_eth0", "PCAP_GROUP_eth0"),
            ("PCAP_FANUOT_eth0_1", "PCAP_FANOUT_eth0_1"),
            ("PCAP_CAPLEN_eth0", "PCAP_CAPLEN"),
            ("PCAP_DRIVER_eth0", "PCAP_DRIVER"),
            ("PCAP_DEF_GROUP_eth0", "PCAP_DEF_GROUP"),
        ] {
            let hint = format!("did you mean '{near}'?");
            assert_eq!(refusal(name, "1"), ("variable-unknown", 1, hint));
        }
    }

    #[test]
    fn old_variables_say_what_to_write_instead() {
        for (name, instead) in [
            ("PFQ_GROUP", "set PCAP_GROUP"),
            ("PCAP_FANOUT_ID", "set PCAP_GROUP"),
            ("PFQ_GROUP_eth0", "set PCAP_GROUP_eth0"),
            ("PFQ_LANG_SRC", "set PCAP_FANOUT=file:PATH"),
            ("PFQ_TX_HW_QUEUE", SENDING),
            ("PFQ_VLAN", VLAN),
            ("PFQ_FORCE_ALL", "unset it, nothing reads it any more"),
        ] {
            assert_eq!(refusal(name, "1"), ("variable-old", 1, instead.to_owned()));
        }
    }

    #[test]
    fn each_refusal_has_its_place() {
        for (name, value, slug, column) in [
            ("PCAP_GROUP", "65536", "out-of-range", 12),
            ("PCAP_FANOUT", "hash+defarg", "option-unknown", 18),
            ("PCAP_GROUP_", "5", "device-name-bad", 12),
            ("PCAP_IRQ_eth0", "5", "channel-missing", 10),
            ("PCAP_IRQ_eth0_x", "5", "not-a-number", 15),
            ("PCAP_HUB", "/run/hub", "hub-not-in-version", 10),
        ] {
            let (found, at, _) = refusal(name, value);
            assert_eq!((found, at), (slug, column), "{name}");
        }
        let both = environment(&[("PCAP_GROUP", "7"), ("PCAP_DEF_GROUP", "8")]);
        let report = parse(&both).unwrap_err();
        assert_eq!(
            report.message,
            "'PCAP_DEF_GROUP' disagrees with 'PCAP_GROUP=7'"
        );
        let both = environment(&[("PCAP_GROUP", "7"), ("PCAP_DEF_GROUP", "7")]);
        assert_eq!(parse(&both).unwrap().len(), 1);
    }
}
