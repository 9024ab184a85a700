//! Entries: one setting with its target, and the rules for all settings of a file or an
//! environment.

use super::keys::{KEYS, Key, Row, Scope};
use super::value::{self, Value};
use crate::report::{Fault, Place, Report, offset_in, quote};
use fanpcap_steer::nearest::nearest_within;
use std::collections::HashMap;

/// The handles to which an entry applies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// Every handle; for [`Key::Fanout`] the default group.
    All,
    /// One group.
    Group(u16),
    /// One device. In a variable's name `_` may stand for any other character.
    Device(String),
    /// One channel of a device.
    Channel(String, u16),
}

/// One setting and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key and its target as written: `fanout@11`, `PCAP_GROUP_eth0`.
    pub name: String,
    /// The key that the entry sets.
    pub key: Key,
    /// The handles to which the entry applies.
    pub target: Target,
    /// The value.
    pub value: Value,
    /// The setting's place.
    pub place: Place,
}

/// Collects entries. Checks their number, and refuses contradictory entries.
#[derive(Default)]
pub(super) struct Entries {
    list: Vec<Entry>,
    index: HashMap<(Key, Target), usize>,
}

impl Entries {
    /// Adds an entry. An equal entry may be repeated. Another value for the same key and target is
    /// an error.
    pub(super) fn add(&mut self, entry: Entry) -> Result<(), Report> {
        if self.list.len() == ENTRIES_MAX {
            let message = format!("more than {ENTRIES_MAX} settings");
            let fault = Fault::new("too-many-settings", message).hint("remove some");
            return Err(fault.report(entry.place));
        }
        // A steering program in `>` lines is another way to write the default group's mode.
        let key = if entry.key == Key::Program {
            Key::Fanout
        } else {
            entry.key
        };
        let index = self
            .index
            .entry((key, entry.target.clone()))
            .or_insert(self.list.len());
        match self.list.get(*index) {
            None => self.list.push(entry),
            Some(first) if first.value == entry.value => {}
            Some(first) => return Err(disagrees(entry, first)),
        }
        Ok(())
    }

    pub(super) fn into_list(self) -> Vec<Entry> {
        self.list
    }
}

fn disagrees(entry: Entry, first: &Entry) -> Report {
    // The place of every variable is line 1 of the environment.
    let other = match first.place.line {
        line if line == entry.place.line => quote(&first.place.text),
        line => format!("line {line}"),
    };
    Fault::new(
        "settings-disagree",
        format!("{} disagrees with {other}", quote(&entry.name)),
    )
    .hint("keep one of them")
    .report(entry.place)
}

/// Parses `DEV.N` or `DEV_N`.
pub(super) fn channel(text: &str, separator: char) -> Result<Target, Fault> {
    match text.rsplit_once(separator) {
        Some((device, channel)) if !device.is_empty() => {
            let at = offset_in(text, channel);
            let channel =
                value::number(channel, 0, CHANNEL_MAX).map_err(|fault| fault.shift(at))?;
            let channel = u16::try_from(channel).expect("CHANNEL_MAX is that of u16");
            Ok(Target::Channel(device.to_owned(), channel))
        }
        _ => {
            let message = format!("no channel number in {}", quote(text));
            let hint = format!("write DEVICE{separator}CHANNEL, as in eth0{separator}0");
            Err(Fault::new("channel-missing", message).hint(hint))
        }
    }
}

/// The row and the target of a key whose target follows a `_`, as in `group_DEV`, although the key
/// needs an `@`: `ring_eth0`. At most `limit` letters of the key may differ.
pub(super) fn behind_underscore(limit: usize, written: &str) -> Option<(&'static Row, &str)> {
    written.match_indices('_').find_map(|(at, _)| {
        let names = KEYS.iter().flat_map(|row| row.names.iter().copied());
        let name = nearest_within(limit, &written[..at], names)?;
        let row = KEYS.iter().find(|row| row.names.contains(&name))?;
        Some((row, &written[at + 1..]))
    })
}

/// A device's or group's key as the config file has it. In `target`, a `_` may precede a channel.
pub(super) fn with_target(row: &Row, target: &str) -> String {
    let name = row.names.first().unwrap_or(&"");
    match channel(target, '_') {
        Ok(Target::Channel(device, channel)) if row.scope == Scope::Channel => {
            format!("{name}@{device}.{channel}")
        }
        _ => format!("{name}@{target}"),
    }
}

const ENTRIES_MAX: usize = 4096;
const CHANNEL_MAX: u32 = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_need_a_device_and_a_number() {
        let vlan = Target::Channel("eth0.5".to_owned(), 0);
        assert_eq!(channel("eth0.5.0", '.'), Ok(vlan));
        assert_eq!(channel("eth0", '.').unwrap_err().slug, "channel-missing");
        assert_eq!(channel(".0", '.').unwrap_err().slug, "channel-missing");
        let fault = channel("eth0.x", '.').unwrap_err();
        assert_eq!((fault.slug, fault.offset), ("not-a-number", 5));
    }
}
