//! The table of keys: the names of each in the config file and the environment, what it applies to,
//! what it takes.

use super::value::{CPU_MAX, GROUP_MAX, Takes, Value};
use crate::report::Fault;
use crate::source::Source;

/// What an entry sets. The order is that of the table of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// The group that handles join.
    Group,
    /// The fan-out mode.
    Fanout,
    /// The steering program of the default group (`>` lines).
    Program,
    /// The upper bound of the snapshot length.
    Caplen,
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

/// What a key's target has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    AllOrGroup,
    Device,
    Channel,
}

/// Which handles this version gives what a key sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Honoured {
    /// All that it concerns.
    Always,
    /// All but those that join a group.
    OutsideGroups,
    /// All, where the value is an engine that reads the rings of packet sockets.
    OnRings,
    /// None.
    Never,
}

/// A key.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) key: Key,
    /// Its names in the config file; `group_DEV` is beside the table.
    pub(super) names: &'static [&'static str],
    /// What is behind the `@`.
    pub(super) scope: Scope,
    /// The variables for all handles, without `PCAP_`.
    pub(super) variables: &'static [&'static str],
    /// The variable, without `PCAP_`, that `_` and a device's name follow.
    pub(super) family: Option<&'static str>,
    pub(super) takes: Takes,
    pub(super) honoured: Honoured,
}

impl Row {
    /// A key that stands in the config file only.
    const fn new(key: Key, names: &'static [&'static str], scope: Scope, takes: Takes) -> Self {
        Self {
            key,
            names,
            scope,
            variables: &[],
            family: None,
            takes,
            honoured: Honoured::Never,
        }
    }

    /// The same key with variables.
    const fn set_by(
        self,
        variables: &'static [&'static str],
        family: Option<&'static str>,
    ) -> Self {
        Self {
            variables,
            family,
            ..self
        }
    }

    /// The same key, for which this version does something.
    const fn honoured(self, honoured: Honoured) -> Self {
        Self { honoured, ..self }
    }
}

/// All keys. A test holds pcap.conf(5) to it.
pub(super) static KEYS: [Row; 16] = [
    Row::new(
        Key::Group,
        &["def_group", "group"],
        Scope::All,
        Takes::Number(0, GROUP_MAX),
    )
    .set_by(&["GROUP", "DEF_GROUP"], Some("GROUP"))
    .honoured(Honoured::Always),
    Row::new(Key::Fanout, &["fanout"], Scope::AllOrGroup, Takes::Fanout)
        .set_by(&["FANOUT"], Some("FANOUT"))
        .honoured(Honoured::Always),
    Row::new(Key::Program, &[], Scope::All, Takes::Fanout).honoured(Honoured::Always),
    Row::new(
        Key::Caplen,
        &["caplen"],
        Scope::All,
        Takes::Number(1, 262_144),
    )
    .set_by(&["CAPLEN"], None)
    .honoured(Honoured::Always),
    Row::new(
        Key::RxSlots,
        &["rx_slots", "pfq_rx_slots"],
        Scope::All,
        Takes::Number(1, 1 << 26),
    )
    .honoured(Honoured::OutsideGroups),
    Row::new(Key::Driver, &["driver"], Scope::Device, Takes::Engine)
        .set_by(&["DRIVER"], None)
        .honoured(Honoured::OnRings),
    Row::new(Key::Steal, &["steal"], Scope::Device, Takes::YesNo),
    Row::new(Key::Outgoing, &["outgoing"], Scope::Device, Takes::YesNo),
    Row::new(Key::Keep, &["keep"], Scope::Device, Takes::YesNo),
    Row::new(Key::RxChannels, &["rx_channels"], Scope::Device, CHANNELS),
    Row::new(Key::TxChannels, &["tx_channels"], Scope::Device, CHANNELS),
    Row::new(
        Key::OtherChannels,
        &["other_channels"],
        Scope::Device,
        CHANNELS,
    ),
    Row::new(
        Key::CombinedChannels,
        &["combined_channels"],
        Scope::Device,
        CHANNELS,
    ),
    Row::new(Key::Channels, &[], Scope::Device, CHANNELS).set_by(&[], Some("CHANNEL")),
    Row::new(Key::Irq, &["irq"], Scope::Channel, Takes::Cpus).set_by(&[], Some("IRQ")),
    Row::new(
        Key::Napi,
        &["napi"],
        Scope::Channel,
        Takes::Number(0, CPU_MAX),
    ),
];

const CHANNELS: Takes = Takes::Number(1, 65_535);

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
    /// The key's row in the table.
    pub(super) fn row(self) -> &'static Row {
        &KEYS[self as usize]
    }

    /// Reads a value of this key.
    pub(super) fn value(self, written: Source) -> Result<Value, Fault> {
        self.row().takes.value(written)
    }
}

#[cfg(test)]
mod tests;
