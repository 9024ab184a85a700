//! The table of keys: what each is called, applies to and accepts; one entry read, and its value.

use crate::device::ENGINES;
use crate::fanout::{Fanout, Script};
use crate::mode::Mode;
use crate::report::{Fault, Place, Report, offset_in, quote};
use crate::source::Source;
use fanpcap_steer::nearest::nearest;
use std::collections::HashMap;

/// What an entry sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// The group that handles join.
    Group,
    /// The upper bound of the snapshot length.
    Caplen,
    /// The fan-out mode.
    Fanout,
    /// The steering program of the default group (`>` lines).
    Program,
    /// The ring's length in packets.
    RxSlots,
    /// The engine of a device.
    Driver,
    /// Packets of the device do not go on to the host.
    Steal,
    /// Packets that the host sends are captured.
    Outgoing,
    /// Channel and affinity settings outlive the process.
    Keep,
    /// The NIC's receive channels.
    RxChannels,
    /// The NIC's transmit channels.
    TxChannels,
    /// The NIC's other channels.
    OtherChannels,
    /// The NIC's combined channels.
    CombinedChannels,
    /// The NIC's channels of whatever sort it has (PCAP_CHANNEL_dev).
    Channels,
    /// The CPUs of a channel's interrupt.
    Irq,
    /// The CPU of a channel's NAPI thread.
    Napi,
}

/// What an entry applies to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// Every handle; for [`Key::Fanout`] the default group.
    All,
    /// One group.
    Group(u16),
    /// One device; in a variable's name `_` may stand for other characters.
    Device(String),
    /// One channel of a device.
    Channel(String, u16),
}

/// A checked value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number within the key's range.
    Number(u32),
    /// `yes` or `no`.
    YesNo(bool),
    /// A list of CPUs as first and last of each range.
    Cpus(Vec<(u32, u32)>),
    /// One of [`ENGINES`].
    Engine(&'static str),
    /// A fan-out mode.
    Mode(Mode),
    /// A steering program.
    Program(Script),
}

impl From<Fanout> for Value {
    fn from(fanout: Fanout) -> Value {
        match fanout {
            Fanout::Mode(mode) => Value::Mode(mode),
            Fanout::Program(script) => Value::Program(script),
        }
    }
}

impl Value {
    pub(super) fn number(&self) -> Option<u32> {
        let Value::Number(number) = self else {
            return None;
        };
        Some(*number)
    }

    pub(super) fn group(&self) -> Option<u16> {
        u16::try_from(self.number()?).ok()
    }
}

/// One setting, and where it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key and its target as written: `fanout@11`, `PCAP_GROUP_eth0`.
    pub name: String,
    /// What it sets.
    pub key: Key,
    /// What it applies to.
    pub target: Target,
    /// The value.
    pub value: Value,
    /// Where it stands.
    pub place: Place,
}

/// What a key's target has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    AllOrGroup,
    Device,
    Channel,
}

/// The config file's keys but for `group_DEV`.
pub(super) const KEYS: [(&str, Key, Scope); 16] = [
    ("def_group", Key::Group, Scope::All),
    ("group", Key::Group, Scope::All),
    ("caplen", Key::Caplen, Scope::All),
    ("fanout", Key::Fanout, Scope::AllOrGroup),
    ("rx_slots", Key::RxSlots, Scope::All),
    ("pfq_rx_slots", Key::RxSlots, Scope::All),
    ("driver", Key::Driver, Scope::Device),
    ("steal", Key::Steal, Scope::Device),
    ("outgoing", Key::Outgoing, Scope::Device),
    ("keep", Key::Keep, Scope::Device),
    ("rx_channels", Key::RxChannels, Scope::Device),
    ("tx_channels", Key::TxChannels, Scope::Device),
    ("other_channels", Key::OtherChannels, Scope::Device),
    ("combined_channels", Key::CombinedChannels, Scope::Device),
    ("irq", Key::Irq, Scope::Channel),
    ("napi", Key::Napi, Scope::Channel),
];

/// Keys of older versions, with what to write instead.
pub(super) const OLD_KEYS: [(&str, &str); 14] = [
    ("pfq_tx_slots", SENDING),
    ("pfq_tx_sync", SENDING),
    ("pfq_tx_hw_queue", SENDING),
    ("pfq_tx_idx_thread", SENDING),
    ("tx_slots", SENDING),
    ("tx_sync", SENDING),
    ("tx_flush", SENDING),
    ("tx_queue", SENDING),
    ("tx_hw_queue", SENDING),
    ("tx_thread", SENDING),
    ("tx_idx_thread", SENDING),
    ("pfq_vlan", VLAN),
    ("vlan", VLAN),
    (
        "lang",
        "write 'fanout = PROGRAM', or the program in lines that begin with '>'",
    ),
];

/// What to write instead of the old settings for sending.
pub(super) const SENDING: &str = "remove it, sending needs no settings";
/// What to write instead of the old settings for VLANs.
pub(super) const VLAN: &str = "use a filter expression such as 'vlan 5'";

impl Key {
    /// Reads a value of this key.
    pub(super) fn value(self, written: Source) -> Result<Value, Fault> {
        let text = written.text();
        match self {
            Key::Group => number(text, 0, GROUP_MAX).map(Value::Number),
            Key::Caplen => number(text, 1, CAPLEN_MAX).map(Value::Number),
            Key::RxSlots => number(text, 1, SLOTS_MAX).map(Value::Number),
            Key::RxChannels
            | Key::TxChannels
            | Key::OtherChannels
            | Key::CombinedChannels
            | Key::Channels => number(text, 1, CHANNEL_MAX).map(Value::Number),
            Key::Napi => number(text, 0, CPU_MAX).map(Value::Number),
            Key::Irq => cpus(text).map(Value::Cpus),
            Key::Steal | Key::Outgoing | Key::Keep => yes_no(text).map(Value::YesNo),
            Key::Driver => engine(text).map(Value::Engine),
            Key::Fanout | Key::Program => Fanout::parse(written).map(Value::from),
        }
    }
}

/// Entries with the rules that concern them all: their number, and what is given twice.
#[derive(Default)]
pub(super) struct Entries {
    list: Vec<Entry>,
    index: HashMap<(Key, Target), usize>,
}

impl Entries {
    /// Adds an entry; the same again is no harm, another value for the same is an error.
    pub(super) fn add(&mut self, entry: Entry) -> Result<(), Report> {
        if self.list.len() == ENTRIES_MAX {
            let message = format!("more than {ENTRIES_MAX} settings");
            let fault = Fault::new("too-many-settings", message).hint("remove some");
            return Err(fault.report(entry.place));
        }
        // A program is the mode of the default group in another notation.
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
    // Every variable is line 1 of the environment.
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

/// A device's name: something, without blanks in it.
pub(super) fn device(text: &str) -> Result<String, Fault> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        let message = format!("{} is no device name", quote(text));
        return Err(Fault::new("device-name-bad", message).hint("write one such as eth0"));
    }
    Ok(text.to_owned())
}

/// Reads `DEV.N` or `DEV_N`.
pub(super) fn channel(text: &str, separator: char) -> Result<Target, Fault> {
    match text.rsplit_once(separator) {
        Some((device, channel)) if !device.is_empty() => {
            let at = offset_in(text, channel);
            let channel = number(channel, 0, CHANNEL_MAX).map_err(|fault| fault.shift(at))?;
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

/// Reads a group number.
pub(super) fn group(text: &str) -> Result<u16, Fault> {
    let group = number(text, 0, GROUP_MAX)?;
    Ok(u16::try_from(group).expect("GROUP_MAX is that of u16"))
}

fn number(text: &str, min: u32, max: u32) -> Result<u32, Fault> {
    let range = || format!("write a number from {min} to {max}");
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let message = format!("{} is not a number", quote(text));
        return Err(Fault::new("not-a-number", message).hint(range()));
    }
    match text.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => {
            let message = format!("{} is out of range", quote(text));
            Err(Fault::new("out-of-range", message).hint(range()))
        }
    }
}

fn cpus(text: &str) -> Result<Vec<(u32, u32)>, Fault> {
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let cpu = |part: &str| {
            let at = offset_in(text, part.trim_start());
            number(part.trim(), 0, CPU_MAX).map_err(|fault| fault.shift(at))
        };
        let (first, last) = (cpu(first)?, cpu(last)?);
        if first > last {
            let message = format!("CPU range {} runs backwards", quote(item.trim()));
            let at = offset_in(text, item.trim_start());
            let hint = format!("write {last}-{first}");
            return Err(Fault::new("cpu-range-backwards", message)
                .hint(hint)
                .shift(at));
        }
        Ok((first, last))
    };
    text.split(',').map(range).collect()
}

fn yes_no(text: &str) -> Result<bool, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => {
            let message = format!("{} is neither yes nor no", quote(text));
            Err(Fault::new("not-yes-or-no", message).hint("write yes or no"))
        }
    }
}

fn engine(text: &str) -> Result<&'static str, Fault> {
    let lower = text.to_ascii_lowercase();
    ENGINES
        .into_iter()
        .find(|engine| *engine == lower)
        .ok_or_else(|| {
            let near = nearest(&lower, ENGINES).map(str::to_owned);
            let otherwise = format!("the drivers are {}", ENGINES.join(", "));
            Fault::new("driver-unknown", format!("unknown driver {}", quote(text)))
                .nearest(near, otherwise)
        })
}

const GROUP_MAX: u32 = 65_535;
const CAPLEN_MAX: u32 = 262_144;
const SLOTS_MAX: u32 = 1 << 26;
const CHANNEL_MAX: u32 = 65_535;
const CPU_MAX: u32 = 8191;
const ENTRIES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn value(key: Key, text: &str) -> Result<Value, Fault> {
        key.value(Source::new("test", text))
    }

    fn refusal(key: Key, text: &str) -> (&'static str, usize) {
        let fault = value(key, text).unwrap_err();
        (fault.slug, fault.offset)
    }

    #[test]
    fn numbers_keep_their_ranges() {
        for (key, min, max) in [
            (Key::Group, 0, 65_535),
            (Key::Caplen, 1, 262_144),
            (Key::RxSlots, 1, 67_108_864),
            (Key::CombinedChannels, 1, 65_535),
            (Key::Napi, 0, 8191),
        ] {
            assert_eq!(value(key, &min.to_string()), Ok(Value::Number(min)));
            assert_eq!(value(key, &max.to_string()), Ok(Value::Number(max)));
            assert_eq!(refusal(key, &(max + 1).to_string()), ("out-of-range", 0));
        }
        assert_eq!(refusal(Key::Caplen, "0"), ("out-of-range", 0));
        assert_eq!(
            refusal(Key::Group, "99999999999999999999"),
            ("out-of-range", 0)
        );
        for text in ["", "-1", "+1", "0x10", "1 2", "1,2", "eleven", "١"] {
            assert_eq!(refusal(Key::Group, text), ("not-a-number", 0), "{text}");
        }
    }

    #[test]
    fn cpu_lists() {
        let list = Value::Cpus(vec![(0, 0), (2, 3), (8191, 8191)]);
        assert_eq!(value(Key::Irq, "0, 2 - 3 ,8191"), Ok(list));
        assert_eq!(refusal(Key::Irq, "0,8192"), ("out-of-range", 2));
        assert_eq!(refusal(Key::Irq, "0,"), ("not-a-number", 2));
        assert_eq!(refusal(Key::Irq, "0-x"), ("not-a-number", 2));
        assert_eq!(refusal(Key::Irq, "1, 3-2"), ("cpu-range-backwards", 3));
    }

    #[test]
    fn words() {
        assert_eq!(value(Key::Keep, "Yes"), Ok(Value::YesNo(true)));
        assert_eq!(value(Key::Keep, "no"), Ok(Value::YesNo(false)));
        assert_eq!(refusal(Key::Keep, "true"), ("not-yes-or-no", 0));
        assert_eq!(value(Key::Driver, "XDP"), Ok(Value::Engine("xdp")));
        let fault = value(Key::Driver, "tpaket").unwrap_err();
        assert_eq!(fault.hint.as_deref(), Some("did you mean 'tpacket'?"));
    }

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
