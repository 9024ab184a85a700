//! One setting of a device that can be read and written as text, so that a journal can put it back.

use crate::channels::{self, Channels};
use crate::device::Device;
use crate::error::DeviceError;
use crate::interrupts;
use crate::napi;
use fanpcap_linux::ethtool::flow;
use fanpcap_linux::process::cpu;
use std::fmt;

/// One setting of a device. Its text form has no spaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knob {
    /// The numbers of channels: `rx=0,tx=0,other=1,combined=8`.
    Channels,
    /// The CPUs of the interrupt with this number: `0,2-3`.
    Irq(u32),
    /// Whether threads poll the queues: `on` or `off`.
    Threaded,
    /// The CPUs of the thread that polls a receive queue.
    Napi(u32),
    /// Another setting of the driver or of the stack.
    Setting(Setting),
}

/// A setting that only `fanpcap tune` changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// A feature by the kernel's name, such as `rx-gro`: `on` or `off`.
    Feature(String),
    /// The lengths of the rings: `rx=512,tx=512`.
    Rings,
    /// The use of pause frames: `autoneg=on,rx=off,tx=off`.
    Pause,
    /// The RSS indirection table: the queue of each entry, as a list of decimal numbers.
    Table,
    /// The key of the RSS hash, in hexadecimal digits.
    Key,
    /// The transformation of the fields before they are hashed: `none`, `symmetric-xor`, ...
    Transform,
    /// The fields that are hashed for a kind of flow (`tcp4`, `udp4`, `tcp6`, `udp6`): `sdfn`.
    FlowHash(Flow),
    /// The CPUs for receive packet steering (RPS) of a receive queue.
    Rps(u32),
    /// The CPUs that send through a transmit queue (XPS).
    Xps(u32),
    /// The device's interrupts that irqbalance(1) leaves alone, as a list of decimal numbers.
    Irqbalance,
}

/// A kind of flow, with the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Flow {
    /// TCP over IPv4.
    Tcp4 = flow::TCP4,
    /// UDP over IPv4.
    Udp4 = flow::UDP4,
    /// TCP over IPv6.
    Tcp6 = flow::TCP6,
    /// UDP over IPv6.
    Udp6 = flow::UDP6,
}

/// Access to the settings of a device, or to a test's imitation of them.
pub trait Knobs {
    /// The present value.
    ///
    /// # Errors
    /// [`DeviceError`].
    fn read(&self, knob: &Knob) -> Result<String, DeviceError>;

    /// Changes the value.
    ///
    /// # Errors
    /// [`DeviceError`].
    fn write(&self, knob: &Knob, value: &str) -> Result<(), DeviceError>;

    /// The value that a read returns after `wanted` has been written. For example, `combined=2` is
    /// completed with the other numbers, and CPUs are listed in rising order.
    ///
    /// # Errors
    /// [`DeviceError`], when the device can't have the value.
    fn complete(&self, knob: &Knob, wanted: &str) -> Result<String, DeviceError>;

    /// Settings that the driver may drop when this setting changes.
    fn dropped_with(&self, knob: &Knob) -> Vec<Knob>;
}

/// The settings that the library itself changes: channels, interrupts and polling threads. They
/// decide on which CPUs packets are received.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a>(pub &'a Device);

impl Knobs for Placement<'_> {
    fn read(&self, knob: &Knob) -> Result<String, DeviceError> {
        match knob {
            Knob::Channels => Ok(channels::text(channels::read(self.0)?)),
            Knob::Irq(number) => {
                self.ensure_own(*number)?;
                Ok(cpu::list_text(&interrupts::affinity(*number)?.asked))
            }
            Knob::Threaded => Ok(on_or_off(napi::is_threaded(self.0)?).to_owned()),
            Knob::Napi(queue) => Ok(cpu::list_text(&napi::affinity(self.0, *queue)?)),
            Knob::Setting(_) => Err(DeviceError::Elsewhere),
        }
    }

    fn write(&self, knob: &Knob, value: &str) -> Result<(), DeviceError> {
        match knob {
            Knob::Channels => channels::set(self.0, self.channels(value)?),
            Knob::Irq(number) => {
                self.ensure_own(*number)?;
                interrupts::set_affinity(*number, &cpus(value)?)
            }
            Knob::Threaded => napi::set_threaded(self.0, is_on(value)?),
            Knob::Napi(queue) => napi::set_affinity(self.0, *queue, &cpus(value)?),
            Knob::Setting(_) => Err(DeviceError::Elsewhere),
        }
    }

    fn complete(&self, knob: &Knob, wanted: &str) -> Result<String, DeviceError> {
        match knob {
            Knob::Channels => Ok(channels::text(self.channels(wanted)?)),
            Knob::Irq(_) | Knob::Napi(_) => Ok(cpu::list_text(&cpus(wanted)?)),
            Knob::Threaded | Knob::Setting(_) => Ok(wanted.to_owned()),
        }
    }

    fn dropped_with(&self, knob: &Knob) -> Vec<Knob> {
        let interrupts = match knob {
            Knob::Channels => interrupts::of_device(self.0).unwrap_or_default(),
            Knob::Threaded => Vec::new(),
            Knob::Irq(_) | Knob::Napi(_) | Knob::Setting(_) => return Vec::new(),
        };
        let interrupts = interrupts.into_iter().map(|it| Knob::Irq(it.number));
        let threads = napi::threads(self.0).unwrap_or_default();
        let threads = threads.into_iter().map(|(queue, _)| Knob::Napi(queue));
        interrupts.chain(threads).collect()
    }
}

impl Placement<'_> {
    fn channels(&self, wanted: &str) -> Result<Channels, DeviceError> {
        let wanted = channels::parse(wanted).ok_or_else(|| wrong(wanted))?;
        channels::with(channels::read(self.0)?, wanted)
    }

    /// Checks that the interrupt still belongs to the device: since the caller learned the number,
    /// another device may have got it.
    fn ensure_own(&self, number: u32) -> Result<(), DeviceError> {
        let own = interrupts::of_device(self.0)?;
        match own.iter().any(|it| it.number == number) {
            true => Ok(()),
            false => Err(DeviceError::Absent),
        }
    }
}

/// The text of a setting that is on or off.
pub fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

pub(crate) fn is_on(text: &str) -> Result<bool, DeviceError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(wrong(text)),
    }
}

/// Reads a list of at least one CPU. Returns the CPUs in rising order.
pub(crate) fn cpus(text: &str) -> Result<Vec<usize>, DeviceError> {
    let mut cpus = cpu::list(text).filter(|cpus| !cpus.is_empty());
    if let Some(cpus) = &mut cpus {
        cpus.sort_unstable();
        cpus.dedup();
    }
    cpus.ok_or_else(|| wrong(text))
}

pub(crate) fn wrong(text: &str) -> DeviceError {
    DeviceError::Value(text.to_owned())
}

impl Knob {
    /// Parses the text that [`fmt::Display`] writes; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, of) = text.split_once('.').unwrap_or((text, ""));
        Some(match kind {
            "irq" => Self::Irq(of.parse().ok()?),
            "napi" => Self::Napi(of.parse().ok()?),
            _ if text == CHANNELS => Self::Channels,
            _ if text == THREADED => Self::Threaded,
            _ => Self::Setting(Setting::parse(text)?),
        })
    }
}

impl Setting {
    fn parse(text: &str) -> Option<Self> {
        let (kind, of) = text.split_once('.').unwrap_or((text, ""));
        Some(match kind {
            "rps" => Self::Rps(of.parse().ok()?),
            "xps" => Self::Xps(of.parse().ok()?),
            "feature" if is_word(of) => Self::Feature(of.to_owned()),
            "flow-hash" => Self::FlowHash(FLOWS.iter().find(|flow| flow.1 == of)?.0),
            _ => SINGLE.iter().find(|single| single.1 == text)?.0.clone(),
        })
    }
}

/// Whether a text is one word of printable ASCII characters, as the names of features are.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

const CHANNELS: &str = "channels";
const THREADED: &str = "threaded";

pub(crate) const SINGLE: [(Setting, &str); 6] = [
    (Setting::Rings, "rings"),
    (Setting::Pause, "pause"),
    (Setting::Table, "table"),
    (Setting::Key, "key"),
    (Setting::Transform, "transform"),
    (Setting::Irqbalance, "irqbalance"),
];

pub(crate) const FLOWS: [(Flow, &str); 4] = [
    (Flow::Tcp4, "tcp4"),
    (Flow::Udp4, "udp4"),
    (Flow::Tcp6, "tcp6"),
    (Flow::Udp6, "udp6"),
];

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channels => f.write_str(CHANNELS),
            Self::Threaded => f.write_str(THREADED),
            Self::Irq(number) => write!(f, "irq.{number}"),
            Self::Napi(queue) => write!(f, "napi.{queue}"),
            Self::Setting(setting) => setting.fmt(f),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rps(queue) => write!(f, "rps.{queue}"),
            Self::Xps(queue) => write!(f, "xps.{queue}"),
            Self::Feature(name) => write!(f, "feature.{name}"),
            Self::FlowHash(flow) => {
                let name = FLOWS.iter().find(|it| it.0 == *flow);
                write!(f, "flow-hash.{}", name.map_or("", |it| it.1))
            }
            Self::Rings
            | Self::Pause
            | Self::Table
            | Self::Key
            | Self::Transform
            | Self::Irqbalance => {
                let name = SINGLE.iter().find(|it| it.0 == *self);
                f.write_str(name.map_or("", |it| it.1))
            }
        }
    }
}

impl From<Setting> for Knob {
    fn from(setting: Setting) -> Self {
        Self::Setting(setting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_is_read_as_it_is_written() {
        let mut settings: Vec<Setting> = SINGLE.iter().map(|it| it.0.clone()).collect();
        settings.extend(FLOWS.iter().map(|it| Setting::FlowHash(it.0)));
        settings.extend([Setting::Rps(3), Setting::Xps(4)]);
        settings.push(Setting::Feature("rx-gro.x".to_owned()));
        let placement = [Knob::Channels, Knob::Threaded, Knob::Irq(41), Knob::Napi(0)];
        let all = settings.into_iter().map(Knob::Setting).chain(placement);
        for knob in all {
            let text = knob.to_string();
            assert_eq!(Knob::parse(&text), Some(knob), "{text}");
        }
        for wrong in [
            "",
            "irq",
            "irq.",
            "irq.x",
            "rings.1",
            "rings.",
            "feature.",
            "flow-hash.x",
        ] {
            assert_eq!(Knob::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_library_leaves_other_settings_alone() {
        let lo = Device::open("lo").unwrap();
        let placement = Placement(&lo);
        assert!(matches!(
            placement.read(&Setting::Rings.into()),
            Err(DeviceError::Elsewhere)
        ));
        let none = placement.read(&Knob::Channels).unwrap_err();
        assert_eq!(none.errno(), libc::EOPNOTSUPP);
        assert!(!none.is_gone());
        let wrong = placement.write(&Knob::Threaded, "maybe").unwrap_err();
        assert_eq!(wrong.errno(), libc::EINVAL);
    }
}
