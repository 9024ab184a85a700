//! The grammar of the config file: turns its text into entries.

use super::entry::{self, Entries, Entry, Target};
use super::keys::{KEYS, Key, OLD_KEYS, Row, Scope};
use super::value::{self, Value};
use crate::fanout::{Fanout, Script, too_long};
use crate::report::{Fault, Place, Report, offset_in, quote};
use crate::source::{PROGRAM_MAX, Source};
use fanpcap_steer::nearest::nearest;

/// Parses the text of a config file. `source` is its name in error messages.
pub fn parse(text: &str, source: &str) -> Result<Vec<Entry>, Report> {
    parse_shown(text, source, true)
}

/// Same as [`parse`], but messages show lines of the file only if `is_shown`. This holds for the
/// errors of this call, and for later messages about the entries that it returns.
pub fn parse_shown(text: &str, source: &str, is_shown: bool) -> Result<Vec<Entry>, Report> {
    let entries = entries(text, source, is_shown);
    if is_shown {
        return entries;
    }
    let mut entries = entries.map_err(Report::withheld)?;
    for entry in &mut entries {
        entry.place.text.clear();
    }
    Ok(entries)
}

fn entries(text: &str, source: &str, is_shown: bool) -> Result<Vec<Entry>, Report> {
    let mut entries = Entries::default();
    let mut program = None;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, line) in (1..).zip(text.lines()) {
        let placed = |fault: Fault| fault.at(source, number, line);
        if let Some(code) = line.trim_start().strip_prefix('>') {
            let begun = program.get_or_insert_with(|| Program::new(source, number, line, is_shown));
            begun.push(line, offset_in(line, code)).map_err(placed)?;
            continue;
        }
        add(&mut entries, program.take())?;
        if let Some(entry) = entry(line, source, number, is_shown).map_err(placed)? {
            entries.add(entry)?;
        }
    }
    add(&mut entries, program)?;
    Ok(entries.into_list())
}

/// The steering program in consecutive `>` lines, as far as it has been read.
struct Program {
    text: Source,
    place: Place,
}

impl Program {
    /// Begins a steering program with the `>` line `number`.
    fn new(source: &str, number: usize, line: &str, is_shown: bool) -> Self {
        let at = line.len() - line.trim_start().len();
        Self {
            text: Source::lines_from(source, number).shown(is_shown),
            place: Place::new(source, number, line, at),
        }
    }

    /// Adds a `>` line. The code in the line begins at byte `at`.
    fn push(&mut self, line: &str, at: usize) -> Result<(), Fault> {
        self.text.push_line(line, at);
        match self.text.text().len() {
            0..=PROGRAM_MAX => Ok(()),
            _ => Err(too_long()),
        }
    }
}

fn add(entries: &mut Entries, program: Option<Program>) -> Result<(), Report> {
    let Some(Program { text, place }) = program else {
        return Ok(());
    };
    entries.add(Entry {
        name: ">".to_owned(),
        key: Key::Program,
        target: Target::All,
        value: Value::Fanout(Fanout::Program(Script::of_text(text))),
        place,
    })
}

/// Parses a line that is not a `>` line; `None` for a blank line or a comment.
fn entry(line: &str, source: &str, number: usize, is_shown: bool) -> Result<Option<Entry>, Fault> {
    let written = without_comment(line).trim();
    if written.is_empty() {
        return Ok(None);
    }
    let start = offset_in(line, written);
    let Some((name, value)) = written.split_once('=') else {
        return Err(without_equals(written).shift(start));
    };
    let name = name.trim_end();
    let (key, target) = key(name).map_err(|fault| fault.shift(start))?;
    if value.is_empty() {
        return Err(no_value(name, key).shift(start + written.len()));
    }
    let value = value.trim_start();
    let at = offset_in(line, value);
    let value = Source::within(source, number, line, at, value.len()).shown(is_shown);
    let value = key.value(value).map_err(|fault| fault.shift(at))?;
    Ok(Some(Entry {
        name: name.to_owned(),
        key,
        target,
        value,
        place: Place::new(source, number, line, start),
    }))
}

/// The fault of a line without `=`. Either a `:` or a space is in the place of the `=`, or the
/// value is missing.
fn without_equals(written: &str) -> Fault {
    let (name, value) =
        written.split_at(written.find(char::is_whitespace).unwrap_or(written.len()));
    // Removes only a `:` at the end, because a virtual device's name contains a `:`.
    let name = name.trim_end_matches(':');
    let value = value.trim_start_matches(|c: char| c == ':' || c.is_whitespace());
    match (key(name), value) {
        (Ok(_), value) if !value.is_empty() => {
            let fault = Fault::new("value-missing", format!("no '=' behind {}", quote(name)));
            let hint = format!("write '{name} = {value}'");
            fault.hint(hint).shift(name.len())
        }
        _ => key(written).map_or_else(
            |fault| fault,
            |(key, _)| no_value(written, key).shift(written.len()),
        ),
    }
}

/// The fault of a key without a value.
fn no_value(name: &str, key: Key) -> Fault {
    let message = format!("{} has no value", quote(name));
    let hint = if key == Key::Fanout {
        "write 'fanout@5 = lb' or 'fanout@5 = file:PATH'; '>' lines are for def_group"
    } else {
        "write 'key = value'"
    };
    Fault::new("value-missing", message).hint(hint)
}

/// The line up to a `#` that is not inside double quotes.
pub fn without_comment(line: &str) -> &str {
    let mut quoted = false;
    let is_comment = |c| {
        quoted ^= c == '"';
        c == '#' && !quoted
    };
    line.find(is_comment).map_or(line, |end| &line[..end])
}

/// Parses `key[@target]`.
fn key(written: &str) -> Result<(Key, Target), Fault> {
    let (name, target) = match written.split_once('@') {
        Some((name, target)) => (name.trim_end(), Some(target.trim_start())),
        None => (written, None),
    };
    let lower = name.to_ascii_lowercase();
    if let Some(row) = KEYS.iter().find(|row| row.names.contains(&lower.as_str())) {
        let at = target.map_or(written.len(), |target| offset_in(written, target));
        let target = scoped(row, &lower, target).map_err(|fault| fault.shift(at))?;
        return Ok((row.key, target));
    }
    if let Some(instead) = OLD_KEYS.iter().find(|old| old.0 == lower).map(|old| old.1) {
        let message = format!("key {} is no longer known", quote(name));
        return Err(Fault::new("key-old", message).hint(instead));
    }
    if lower.starts_with(GROUP_OF) {
        return group_of(written).map(|device| (Key::Group, Target::Device(device)));
    }
    Err(unknown(name, &lower))
}

/// Parses the device of `group_DEV`.
fn group_of(written: &str) -> Result<String, Fault> {
    if let Some(at) = written.find('@') {
        return Err(target_unwanted(written).shift(at + 1));
    }
    value::device(&written[GROUP_OF.len()..]).map_err(|fault| fault.shift(GROUP_OF.len()))
}

fn scoped(row: &Row, key: &str, target: Option<&str>) -> Result<Target, Fault> {
    match (row.scope, target) {
        (Scope::All | Scope::AllOrGroup, None) => Ok(Target::All),
        (Scope::AllOrGroup, Some(target)) => {
            value::group(target)
                .map(Target::Group)
                .map_err(|fault| match fault.slug {
                    "not-a-number" => fault.hint(OF_GROUP),
                    _ => fault,
                })
        }
        (Scope::Device, Some(target)) => value::device(target).map(Target::Device),
        (Scope::Channel, Some(target)) => {
            value::device(target).and_then(|_| entry::channel(target, '.'))
        }
        (Scope::All, Some(target)) => Err(match (value::device(target), row.key) {
            (Ok(device), Key::Group) => {
                target_unwanted(key).hint(format!("write '{GROUP_OF}{device} = NUMBER'"))
            }
            _ => target_unwanted(key),
        }),
        (scope @ (Scope::Device | Scope::Channel), None) => {
            let channel = if scope == Scope::Channel { ".0" } else { "" };
            let message = format!("key '{key}' needs a device");
            let hint = format!("write it as in {key}@eth0{channel}");
            Err(Fault::new("target-missing", message).hint(hint))
        }
    }
}

fn target_unwanted(key: &str) -> Fault {
    Fault::new(
        "target-unwanted",
        format!("key {} takes no '@'", quote(key)),
    )
    .hint("remove '@' and what follows")
}

fn unknown(name: &str, lower: &str) -> Fault {
    if name.is_empty() {
        return Fault::new("key-missing", "no key before '='").hint("write 'key = value'");
    }
    let fault = Fault::new("key-unknown", format!("unknown key {}", quote(name)));
    let Some((row, target)) = entry::behind_underscore(usize::MAX, name) else {
        let near = nearest(lower, KEYS.iter().flat_map(|row| row.names.iter().copied()));
        return fault.nearest(near.map(str::to_owned), "see pcap.conf(5) for the keys");
    };
    let near = match row.scope {
        Scope::All if row.key == Key::Group => Some(format!("{GROUP_OF}{target}")),
        Scope::All => row.names.first().map(|&name| name.to_owned()),
        Scope::AllOrGroup if value::group(target).is_err() => None,
        Scope::AllOrGroup | Scope::Device | Scope::Channel => Some(entry::with_target(row, target)),
    };
    fault.nearest(near, OF_GROUP)
}

const GROUP_OF: &str = "group_";
/// Advice about a key that names a device where it needs a group.
const OF_GROUP: &str = "write the group's number, as in fanout@5";

#[cfg(test)]
mod tests;
