//! The table of keys: names in the config file and the environment, targets, and types of value.

use super::value::{CPU_MAX, GROUP_MAX, Takes, Value};
use crate::report::Fault;
use crate::source::Source;

/// The key of a setting, in the order of the table of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Key {
    /// The group that handles join.
    Group,
    /// The fan-out mode.
    Fanout,
    /// The steering program of the default group (`>` lines).
    Program,
    /// The member's name in its group.
    Member,
    /// The upper bound of the snapshot length.
    Caplen,
    /// The size of a handle's ring.
    Ring,
    /// The engine of a device.
    Driver,
    /// Whether the host loses the packets that the device receives.
    Steal,
    /// Whether packets that the host sends are captured.
    Outgoing,
    /// What a handle does when its device is gone.
    Gone,
    /// Whether channel and affinity settings stay when the handle is closed.
    Keep,
    /// The NIC's receive channels.
    RxChannels,
    /// The NIC's transmit channels.
    TxChannels,
    /// The NIC's other channels.
    OtherChannels,
    /// The NIC's combined channels.
    CombinedChannels,
    /// The NIC's channels that receive, of either kind (PCAP_CHANNEL_dev).
    Channels,
    /// The CPUs of a channel's interrupt.
    Irq,
    /// The CPU of a channel's NAPI thread.
    Napi,
}

/// The targets that a key can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    AllOrGroup,
    Device,
    Channel,
}

/// The handles for which this version honours a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Honoured {
    /// All handles to which the setting applies.
    Always,
    /// Handles on engines that attach to devices.
    OnDevices,
    /// Handles on engines other than packet sockets.
    OnEngine,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) key: Key,
    /// The names in the config file, except `group_DEV`.
    pub(super) names: &'static [&'static str],
    /// The targets after the `@`.
    pub(super) scope: Scope,
    /// The variables for all handles, without `PCAP_`.
    pub(super) variables: &'static [&'static str],
    /// The beginning of the variables for one device, without `PCAP_`. In a variable, `_` and the
    /// device's name follow.
    pub(super) family: Option<&'static str>,
    pub(super) takes: Takes,
    pub(super) honoured: Honoured,
}

impl Row {
    /// A key that only the config file has.
    const fn new(key: Key, names: &'static [&'static str], scope: Scope, takes: Takes) -> Self {
        Self {
            key,
            names,
            scope,
            variables: &[],
            family: None,
            takes,
            honoured: Honoured::Always,
        }
    }

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

    /// Sets for which handles this version honours a key.
    const fn honoured(self, honoured: Honoured) -> Self {
        Self { honoured, ..self }
    }
}

/// All keys. A test compares the table with pcap.conf(5).
pub(super) static KEYS: [Row; 18] = [
    Row::new(
        Key::Group,
        &["def_group", "group"],
        Scope::All,
        Takes::Number(0, GROUP_MAX),
    )
    .set_by(&["GROUP", "DEF_GROUP"], Some("GROUP")),
    Row::new(Key::Fanout, &["fanout"], Scope::AllOrGroup, Takes::Fanout)
        .set_by(&["FANOUT"], Some("FANOUT")),
    Row::new(Key::Program, &[], Scope::All, Takes::Fanout),
    Row::new(Key::Member, &["member"], Scope::All, Takes::Name).set_by(&["MEMBER"], None),
    Row::new(
        Key::Caplen,
        &["caplen"],
        Scope::All,
        Takes::Number(1, 262_144),
    )
    .set_by(&["CAPLEN"], None),
    Row::new(Key::Ring, &["ring"], Scope::Device, Takes::Size).set_by(&["RING"], None),
    Row::new(Key::Driver, &["driver"], Scope::Device, Takes::Driver).set_by(&["DRIVER"], None),
    Row::new(Key::Steal, &["steal"], Scope::Device, Takes::Steal).honoured(Honoured::OnDevices),
    Row::new(Key::Outgoing, &["outgoing"], Scope::Device, Takes::YesNo)
        .honoured(Honoured::OnEngine),
    Row::new(Key::Gone, &["gone"], Scope::Device, Takes::Gone).set_by(&["GONE"], None),
    Row::new(Key::Keep, &["keep"], Scope::Device, Takes::YesNo),
    channels(Key::RxChannels, &["rx_channels"]),
    channels(Key::TxChannels, &["tx_channels"]),
    channels(Key::OtherChannels, &["other_channels"]),
    channels(Key::CombinedChannels, &["combined_channels"]),
    channels(Key::Channels, &[]).set_by(&[], Some("CHANNEL")),
    Row::new(Key::Irq, &["irq"], Scope::Channel, Takes::Cpus).set_by(&[], Some("IRQ")),
    Row::new(
        Key::Napi,
        &["napi"],
        Scope::Channel,
        Takes::Number(0, CPU_MAX),
    ),
];

const fn channels(key: Key, names: &'static [&'static str]) -> Row {
    let takes = Takes::Number(1, 65_535);
    Row::new(key, names, Scope::Device, takes)
}

/// Keys of older versions, with their replacements.
pub(super) const OLD_KEYS: [(&str, &str); 16] = [
    ("rx_slots", RING),
    ("pfq_rx_slots", RING),
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

/// The replacement of the old settings for the ring's length in packets.
pub(super) const RING: &str = "write the ring's size, as in ring@eth0 = 64M";
/// The replacement of the old settings for sending.
pub(super) const SENDING: &str = "remove it, sending needs no settings";
/// The replacement of the old settings for VLANs.
pub(super) const VLAN: &str = "use a filter expression such as 'vlan 5'";

impl Key {
    pub(super) fn row(self) -> &'static Row {
        &KEYS[self as usize]
    }

    pub(super) fn value(self, written: Source) -> Result<Value, Fault> {
        self.row().takes.value(written)
    }
}

#[cfg(test)]
mod tests;
