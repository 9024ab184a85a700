//! Changes that settings ask for: to a device's channels, interrupts and polling threads.

use super::asked::Asked;
use super::entry::{Entry, Target};
use super::keys::Key;
use super::value::Value;
use crate::report::{Fault, Place, Report, quote};

/// Changes that settings ask for, to one device. They are undone when the handle is closed, unless
/// `stays`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The device.
    pub device: String,
    /// The changes, in the order in which they are made.
    pub asks: Vec<Ask>,
    /// Whether the changes stay when the handle is closed (`keep@DEVICE = yes`).
    pub stays: bool,
}

/// One change to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The change.
    pub what: What,
    place: Place,
}

/// A change that a setting asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The device has this number of channels of this kind.
    Channels(Kind, u32),
    /// The CPUs of the interrupts of a channel, as the first and last of each range.
    Irq(u16, Vec<(u32, u32)>),
    /// The CPU of the thread that polls a queue.
    Napi(u16, u32),
}

/// A kind of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Channels that only receive.
    Rx,
    /// Channels that only send.
    Tx,
    /// Channels for other purposes.
    Other,
    /// Channels that receive and send.
    Combined,
    /// Whichever kind of channels receives on this device.
    Receiving,
}

impl Placement {
    /// The report of a change that can't be made: the change with the index `ask`, or the first
    /// change if `ask` is `None`.
    pub fn blame(&self, ask: Option<usize>, why: &str) -> Report {
        let ask = self.asks.get(ask.unwrap_or(0)).or(self.asks.first());
        let place = ask.map_or_else(|| Place::new("", 1, "", 0), |ask| ask.place.clone());
        let message = format!(
            "device {} can't have this setting: {why}",
            quote(&self.device)
        );
        let fault = Fault::new("device-not-set", message);
        fault
            .hint("see 'fanpcap tune DEVICE', or remove the setting")
            .report(place)
    }
}

impl Asked<'_> {
    /// The changes that settings ask for on this device; `None` if they ask for none. A setting in
    /// the environment takes precedence over one in the file.
    pub(super) fn placement(&self) -> Option<Placement> {
        let mut asks: Vec<Ask> = Vec::new();
        let all = [&self.settings.environment, &self.settings.file];
        for entry in all
            .into_iter()
            .flatten()
            .filter(|entry| self.concerns(entry))
        {
            let Some(what) = what(entry) else {
                continue;
            };
            if !asks.iter().any(|ask| ask.what.covers(&what)) {
                let place = entry.place.clone();
                asks.push(Ask { what, place });
            }
        }
        // Change the channels first: a change of channels creates and removes interrupts and
        // threads.
        let is_first = |ask: &Ask| matches!(ask.what, What::Channels(..));
        let (mut asks, others): (Vec<_>, Vec<_>) = asks.into_iter().partition(is_first);
        asks.extend(others);
        let stays = self.of_device(Key::Keep).map(|entry| &entry.value);
        (!asks.is_empty()).then(|| Placement {
            device: self.part.base.clone(),
            asks,
            stays: stays == Some(&Value::YesNo(true)),
        })
    }
}

impl What {
    /// Whether `other`, which has lower precedence, sets what this change already sets.
    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Channels(Kind::Receiving, _), Self::Channels(..)) => true,
            (Self::Channels(kind, _), Self::Channels(other, _)) => kind == other,
            (Self::Irq(channel, _), Self::Irq(other, _))
            | (Self::Napi(channel, _), Self::Napi(other, _)) => channel == other,
            (Self::Channels(..) | Self::Irq(..) | Self::Napi(..), _) => false,
        }
    }
}

/// The change that an entry asks for on its device.
fn what(entry: &Entry) -> Option<What> {
    let channel = match entry.target {
        Target::Channel(_, channel) => channel,
        Target::All | Target::Group(_) | Target::Device(_) => 0,
    };
    let channels = |kind| Some(What::Channels(kind, entry.value.number()?));
    match (entry.key, &entry.value) {
        (Key::RxChannels, _) => channels(Kind::Rx),
        (Key::TxChannels, _) => channels(Kind::Tx),
        (Key::OtherChannels, _) => channels(Kind::Other),
        (Key::CombinedChannels, _) => channels(Kind::Combined),
        (Key::Channels, _) => channels(Kind::Receiving),
        (Key::Irq, Value::Cpus(ranges)) => Some(What::Irq(channel, ranges.clone())),
        (Key::Napi, Value::Number(cpu)) => Some(What::Napi(channel, *cpu)),
        _ => None,
    }
}
