//! The policy file of a poller: sections for users and for groups of users.
//!
//! ```text
//! others = no                 # users without a section
//!
//! [user alice]
//! devices = packet:eth0
//! memory  = 512M
//!
//! [group wireshark]
//! groups  = 2
//! filter  = not host 10.0.0.1
//! ```

use super::{Access, Grant, Others, Rule, Who};
use crate::filter::Filter;
use fanpcap_config::report::{Fault, Place, Report, offset_in, quote};
use fanpcap_config::settings::file::without_comment;
use fanpcap_config::settings::number;
use fanpcap_steer::PcapCompiler;
use fanpcap_steer::nearest::nearest;
use std::sync::Arc;

/// The settings of a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    /// Whether users without a section may become members, if the socket's mode lets them.
    pub others: bool,
    /// The sections, in the file's order.
    pub sections: Vec<Section>,
}

/// A section of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// For whom the section is.
    pub who: Named,
    /// The devices of which these users may become members.
    pub devices: Devices,
    /// What each of these users may take. [`PolicyFile::resolve`] adds the filter.
    pub gives: Grant,
    /// The pcap filter of these users' packets.
    pub filter: Option<Expression>,
    /// Where the section begins.
    pub place: Place,
}

/// A pcap filter as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// The expression.
    pub text: String,
    /// Where it begins.
    pub place: Place,
}

/// For whom a section is, by name or number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A user.
    User(String),
    /// A group of users.
    Group(String),
}

/// The devices of a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// All that the poller serves.
    All,
    /// These, such as `packet:eth0`; none if the list is empty.
    These(Vec<String>),
}

/// A policy file whose users and groups have numbers, and whose filters are compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    others: bool,
    sections: Vec<(Who, Section)>,
}

impl PolicyFile {
    /// Reads the text of a file that errors call `source`.
    ///
    /// # Errors
    /// The text's first mistake, with its place.
    pub fn parse(text: &str, source: &str) -> Result<Self, Report> {
        let mut file = Self {
            others: true,
            sections: Vec::new(),
        };
        let mut set = Vec::new();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (number, line) in (1..).zip(text.lines()) {
            let written = without_comment(line).trim();
            if written.is_empty() {
                continue;
            }
            let at = offset_in(line, written);
            let placed = |fault: Fault| fault.shift(at).at(source, number, line);
            if written.starts_with('[') {
                let who = header(written).map_err(placed)?;
                let place = Place::new(source, number, line, at);
                file.begin(who, place).map_err(placed)?;
                set.clear();
                continue;
            }
            let (key, value, value_at) = setting(written, file.sections.last()).map_err(placed)?;
            if set.contains(&key) {
                let message = format!("{} is set twice", quote(key));
                let fault = Fault::new("policy-twice", message).hint("keep one of them");
                return Err(placed(fault));
            }
            set.push(key);
            let place = Place::new(source, number, line, at + value_at);
            let done = file.set(key, (value, place));
            done.map_err(|fault| placed(fault.shift(value_at)))?;
        }
        Ok(file)
    }

    fn begin(&mut self, who: Named, place: Place) -> Result<(), Fault> {
        if let Some(before) = self.sections.iter().find(|it| it.who == who) {
            let message = format!("this section is in line {} already", before.place.line);
            return Err(Fault::new("policy-twice", message).hint("keep one of them"));
        }
        self.sections.push(Section {
            who,
            devices: Devices::All,
            gives: Grant::default(),
            filter: None,
            place,
        });
        Ok(())
    }

    fn set(&mut self, key: &str, (value, place): (&str, Place)) -> Result<(), Fault> {
        let Some(section) = self.sections.last_mut() else {
            self.others = is_yes(value)?;
            return Ok(());
        };
        let most = |most| number(value, 0, most).map(|it| Some(it.into()));
        match key {
            DEVICES => section.devices = devices(value)?,
            MEMORY => section.gives.bytes = Some(bytes(value)?),
            GROUPS => section.gives.groups = most(GROUPS_MAX)?,
            FILTER => {
                let text = expression(value)?.to_owned();
                section.filter = Some(Expression { text, place });
            }
            _ => section.gives.connections = most(CONNECTIONS_MAX)?,
        }
        Ok(())
    }

    /// Finds the numbers of all users and groups, and compiles the filters.
    ///
    /// # Errors
    /// There is no such user or group; two sections are for the same one; or a filter can't be
    /// compiled.
    pub fn resolve(
        self,
        user: impl Fn(&str) -> Option<u32>,
        group: impl Fn(&str) -> Option<u32>,
        compile: PcapCompiler<'_>,
    ) -> Result<Resolved, Report> {
        let mut sections: Vec<(Who, Section)> = Vec::new();
        for mut section in self.sections {
            let (who, what, name) = match &section.who {
                Named::User(name) => (user(name).map(Who::User), USER, name),
                Named::Group(name) => (group(name).map(Who::Group), GROUP, name),
            };
            let Some(who) = who else {
                let fault = Fault::new("policy-nobody", format!("no {what} {}", quote(name)));
                let fault = fault.hint(format!("'getent {}' lists them", database(what)));
                return Err(fault.report(section.place));
            };
            if let Some((_, before)) = sections.iter().find(|(it, _)| *it == who) {
                let message = format!("the section in line {} is for the same", before.place.line);
                let fault = Fault::new("policy-twice", message).hint("keep one of them");
                return Err(fault.report(section.place));
            }
            let filter = section.filter.as_ref().map(|it| it.compiled(compile));
            section.gives.filter = filter.transpose()?;
            sections.push((who, section));
        }
        let others = self.others;
        Ok(Resolved { others, sections })
    }
}

impl Expression {
    fn compiled(&self, compile: PcapCompiler<'_>) -> Result<Arc<Filter>, Report> {
        let text = self.text.clone();
        let code = compile(&text).and_then(|code| match code.len() {
            0..=CODE_MAX => Ok(code),
            len => Err(format!("it has {len} instructions, more than {CODE_MAX}")),
        });
        match code {
            Ok(code) => Ok(Arc::new(Filter { text, code })),
            Err(why) => Err(bad_filter(&text, &why).report(self.place.clone())),
        }
    }
}

impl Resolved {
    /// The rules of a device, such as `packet:eth0`. `group` are the users who may become members
    /// besides root, if the file says nothing else.
    pub fn access(&self, device: &str, group: Option<u32>) -> Access {
        let rule = |(who, section): &(Who, Section)| Rule {
            who: *who,
            gives: match &section.devices {
                Devices::These(these) if !these.iter().any(|it| it == device) => None,
                Devices::These(_) | Devices::All => Some(section.gives.clone()),
            },
        };
        let others = match self.others {
            true => Others::RootAnd(group),
            false => Others::Nobody,
        };
        Access::new(self.sections.iter().map(rule).collect(), others)
    }
}

const USER: &str = "user";
const GROUP: &str = "group";
const OTHERS: &str = "others";
const DEVICES: &str = "devices";
const MEMORY: &str = "memory";
const GROUPS: &str = "groups";
const CONNECTIONS: &str = "connections";
const FILTER: &str = "filter";

/// The keys of a section.
const KEYS: [&str; 5] = [DEVICES, MEMORY, GROUPS, CONNECTIONS, FILTER];

const GROUPS_MAX: u32 = 64;
const CONNECTIONS_MAX: u32 = 1024;
/// In MiB.
const MEMORY_MAX: u32 = 1 << 20;
const DEVICES_MAX: usize = 64;
/// The most bytes of a filter: an address list of a hundred hosts has half of them.
const EXPRESSION_MAX: usize = 4096;
/// The most instructions of a filter, as in the kernel (`BPF_MAXINSNS`).
const CODE_MAX: usize = 4096;

/// The database of getent(1) that has these names.
fn database(what: &str) -> &'static str {
    match what {
        USER => "passwd",
        _ => GROUP,
    }
}

/// A section's first line: `[user NAME]` or `[group NAME]`.
fn header(written: &str) -> Result<Named, Fault> {
    let bad = || {
        let message = format!("{} is no section", quote(written));
        Fault::new("policy-section", message).hint("write '[user NAME]' or '[group NAME]'")
    };
    let inner = written
        .strip_prefix('[')
        .and_then(|it| it.strip_suffix(']'));
    let mut words = inner.ok_or_else(bad)?.split_whitespace();
    let (what, name) = words.next().zip(words.next()).ok_or_else(bad)?;
    let is_name = !name.starts_with('-') && name.chars().all(|c| !c.is_control() && c != ':');
    if words.next().is_some() || !is_name {
        return Err(bad());
    }
    match what {
        USER => Ok(Named::User(name.to_owned())),
        GROUP => Ok(Named::Group(name.to_owned())),
        _ => Err(bad()),
    }
}

/// The key and the value of a line, and the value's offset. `section` is the section of the line.
fn setting<'a>(
    written: &'a str,
    section: Option<&Section>,
) -> Result<(&'static str, &'a str, usize), Fault> {
    let (name, value) = written.split_once('=').unwrap_or((written, ""));
    let (name, value) = (name.trim_end(), value.trim());
    let known: &[&'static str] = match section {
        Some(_) => &KEYS,
        None => &[OTHERS],
    };
    let Some(key) = known.iter().find(|it| **it == name) else {
        let near = nearest(name, known.iter().copied()).map(str::to_owned);
        let all = match section {
            Some(_) => format!("a section has {}", known.join(", ")),
            None => "before the first section there is only 'others'".to_owned(),
        };
        let fault = Fault::new("policy-key", format!("unknown key {}", quote(name)));
        return Err(fault.nearest(near, all));
    };
    if value.is_empty() {
        let fault = Fault::new("policy-value", format!("{} has no value", quote(key)));
        return Err(fault.hint("write 'key = value'").shift(written.len()));
    }
    Ok((key, value, offset_in(written, value)))
}

fn bad_value(value: &str, hint: &str) -> Fault {
    let message = format!("{} can't be the value", quote(value));
    Fault::new("policy-value", message).hint(hint)
}

fn is_yes(value: &str) -> Result<bool, Fault> {
    match value {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(bad_value(value, "write yes or no")),
    }
}

fn devices(value: &str) -> Result<Devices, Fault> {
    let wrong = |it| {
        bad_value(
            it,
            "write all, none, or devices such as packet:eth0, afxdp:eth1",
        )
    };
    match value {
        "all" => return Ok(Devices::All),
        "none" => return Ok(Devices::These(Vec::new())),
        _ => {}
    }
    let mut these = Vec::new();
    for item in value.split(',').map(str::trim) {
        let parts = item.split_once(':').filter(|(engine, device)| {
            let is_bad = |c: char| c.is_whitespace() || c.is_control() || c == '/';
            !engine.is_empty() && !device.is_empty() && !item.contains(is_bad)
        });
        if parts.is_none() || these.len() == DEVICES_MAX {
            return Err(wrong(item).shift(offset_in(value, item)));
        }
        these.push(item.to_owned());
    }
    Ok(Devices::These(these))
}

/// A filter that libpcap may read.
fn expression(value: &str) -> Result<&str, Fault> {
    if value.len() > EXPRESSION_MAX {
        let why = format!("it is longer than {EXPRESSION_MAX} bytes");
        return Err(bad_filter(value, &why));
    }
    match value.find(|letter: char| letter.is_control() && letter != '\t') {
        Some(at) => Err(bad_filter(value, "it has a control character").shift(at)),
        None => Ok(value),
    }
}

fn bad_filter(text: &str, why: &str) -> Fault {
    let fault = Fault::new("policy-filter", format!("filter {}: {why}", quote(text)));
    fault.hint("write an expression of pcap-filter(7), without quotes")
}

fn bytes(value: &str) -> Result<u64, Fault> {
    let mut units = [('M', 1), ('G', 1024)].into_iter();
    let found = units.find_map(|(unit, times)| Some((value.strip_suffix(unit)?, times)));
    let (count, times) =
        found.ok_or_else(|| bad_value(value, "write a size such as 512M or 2G"))?;
    let count = number(count, 0, MEMORY_MAX / times)?;
    Ok(u64::from(count * times) << 20)
}

#[cfg(test)]
mod tests;
