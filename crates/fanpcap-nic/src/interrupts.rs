//! The interrupts of a device's channels, and the CPUs that they are delivered to.

pub mod names;

use crate::device::Device;
use fanpcap_linux::netlink::netdev;
use fanpcap_linux::process::cpu;
use names::Known;
use std::path::PathBuf;
use std::time::Duration;
use std::{fmt, fs, io, thread};

/// An interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// The kernel's number.
    pub number: u32,
    /// The name in `/proc/interrupts`, or `queue-N` if only the driver names the channel.
    pub name: String,
    /// What the interrupt serves.
    pub serves: Serves,
}

/// What an interrupt serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// The channel with this number, in both directions.
    Both(u32),
    /// The receiving side of the channel.
    Rx(u32),
    /// The sending side of the channel.
    Tx(u32),
    /// Something else, such as link changes.
    Other,
}

/// The CPUs of an interrupt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Affinity {
    /// The CPUs that were asked for.
    pub asked: Vec<usize>,
    /// The CPUs that the controller delivers to. The kernel chooses one of those asked for.
    pub effective: Vec<usize>,
}

/// When an affinity takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The controller delivers to the CPUs that were asked for.
    Now,
    /// The controller changes over at the next interrupt.
    Later,
}

/// Why interrupts can't be found, read or set.
#[derive(Debug)]
pub enum InterruptError {
    /// The device has no interrupts: another device of the kernel passes packets to it.
    None,
    /// The device is down; it has interrupts when it is up.
    Down,
    /// The device has no channel with this number.
    NoChannel {
        /// The channel that was asked for.
        channel: u32,
        /// How many channels have interrupts.
        channels: u32,
    },
    /// None of the CPUs is online.
    Offline,
    /// The kernel places the interrupt itself (managed affinity).
    Managed,
    /// The process may not set it.
    Forbidden(io::Error),
    /// The kernel can't be queried.
    System(io::Error),
}

/// The interrupts of a device, in the order of their numbers.
///
/// # Errors
/// [`InterruptError::None`] and [`InterruptError::System`].
pub fn of_device(device: &Device) -> Result<Vec<Interrupt>, InterruptError> {
    let table = fs::read_to_string("/proc/interrupts").map_err(InterruptError::System)?;
    let numbers = message_numbers(device);
    let bus = bus_name(device);
    let known = Known {
        device: &device.name,
        bus: bus.as_deref(),
        numbers: &numbers,
    };
    let mut found = names::find(&table, known);
    add_told(device, &mut found);
    match (found.is_empty(), numbers.is_empty()) {
        (true, true) => Err(InterruptError::None),
        (true, false) => Err(InterruptError::Down),
        _ => Ok(found),
    }
}

/// The numbers of a device's interrupts. Prefers those of sysfs: a container may hide the lines
/// of `/proc/interrupts`.
pub(crate) fn numbers(device: &Device) -> Vec<u32> {
    let numbers = message_numbers(device);
    match numbers.is_empty() {
        true => {
            let named = of_device(device).unwrap_or_default();
            named.iter().map(|it| it.number).collect()
        }
        false => numbers,
    }
}

/// The interrupts of a device's channel: one, or one for each direction.
///
/// # Errors
/// As [`of_device`], and [`InterruptError::NoChannel`].
pub fn of_channel(device: &Device, channel: u32) -> Result<Vec<Interrupt>, InterruptError> {
    let mut all = of_device(device)?;
    let channels = all.iter().filter_map(|it| Some(it.serves.channel()? + 1));
    let channels = channels.max().unwrap_or(0);
    all.retain(|it| it.serves.channel() == Some(channel));
    match all.is_empty() {
        true => Err(InterruptError::NoChannel { channel, channels }),
        false => Ok(all),
    }
}

/// The CPUs of the interrupt with this number.
///
/// # Errors
/// [`InterruptError::System`].
pub fn affinity(number: u32) -> Result<Affinity, InterruptError> {
    let read = |file: &str| {
        let text = fs::read_to_string(place(number, file)).map_err(InterruptError::System)?;
        let malformed = || InterruptError::System(io::ErrorKind::InvalidData.into());
        cpu::list(text.trim()).ok_or_else(malformed)
    };
    let asked = read("smp_affinity_list")?;
    Ok(Affinity {
        // The file is missing before Linux 4.13, and on some architectures.
        effective: read("effective_affinity_list").unwrap_or_else(|_| asked.clone()),
        asked,
    })
}

/// Sets the CPUs of the interrupt with this number.
///
/// # Errors
/// [`InterruptError`].
pub fn set_affinity(number: u32, cpus: &[usize]) -> Result<Holds, InterruptError> {
    let list = cpu::list_text(cpus);
    let written = fs::write(place(number, "smp_affinity_list"), list);
    written.map_err(|error| match error.raw_os_error() {
        // kernel/irq/proc.c, `write_irq_affinity()`.
        Some(EIO) => InterruptError::Managed,
        Some(EINVAL | EOVERFLOW) => InterruptError::Offline,
        Some(EACCES | EPERM | EROFS) => InterruptError::Forbidden(error),
        _ => InterruptError::System(error),
    })?;
    for attempt in 0..ATTEMPTS {
        let Affinity { effective, .. } = affinity(number)?;
        // An interrupt that no driver has requested yet is delivered nowhere.
        if effective.iter().all(|cpu| cpus.contains(cpu)) {
            return Ok(Holds::Now);
        }
        if attempt + 1 < ATTEMPTS {
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(Holds::Later)
}

/// The numbers in `msi_irqs`. The PCI device above a virtio device has the interrupts.
fn message_numbers(device: &Device) -> Vec<u32> {
    let list = |path| {
        let entries = device.sysfs(path).and_then(fs::read_dir);
        let names = entries.into_iter().flatten().flatten();
        let numbers = names.filter_map(|it| it.file_name().to_str()?.parse().ok());
        numbers.collect::<Vec<u32>>()
    };
    let own = list("device/msi_irqs");
    match own.is_empty() {
        true => list("device/../msi_irqs"),
        false => own,
    }
}

fn bus_name(device: &Device) -> Option<String> {
    let target = fs::read_link(device.sysfs("device").ok()?).ok()?;
    Some(target.file_name()?.to_str()?.to_owned())
}

/// Adds the receive queues that the driver reported to the kernel. They override the names.
fn add_told(device: &Device, found: &mut Vec<Interrupt>) {
    let napis = netdev::napis(device.ifindex).unwrap_or_default();
    let queues = netdev::receive_queues(device.ifindex).unwrap_or_default();
    for (queue, id) in queues {
        let napi = napis.iter().find(|napi| napi.id == id);
        let Some(number) = napi.and_then(|napi| napi.irq) else {
            continue;
        };
        match found.iter_mut().find(|it| it.number == number) {
            Some(named) if named.serves.channel() == Some(queue) => {}
            Some(named) => named.serves = Serves::Both(queue),
            None => found.push(Interrupt {
                number,
                name: format!("queue-{queue}"),
                serves: Serves::Both(queue),
            }),
        }
    }
}

fn place(number: u32, file: &str) -> PathBuf {
    format!("/proc/irq/{number}/{file}").into()
}

impl Serves {
    /// The number of the channel.
    pub fn channel(self) -> Option<u32> {
        match self {
            Self::Both(channel) | Self::Rx(channel) | Self::Tx(channel) => Some(channel),
            Self::Other => None,
        }
    }
}

impl Affinity {
    /// The CPUs that the controller has chosen among those asked for, or all those asked for while
    /// it still delivers elsewhere.
    pub fn chosen(self) -> Vec<usize> {
        let Self {
            asked,
            mut effective,
        } = self;
        effective.retain(|cpu| asked.contains(cpu));
        match effective.is_empty() {
            true => asked,
            false => effective,
        }
    }
}

impl InterruptError {
    /// The number for errno.
    pub fn errno(&self) -> i32 {
        match self {
            Self::None => EOPNOTSUPP,
            Self::Down => ENETDOWN,
            Self::NoChannel { .. } | Self::Offline => EINVAL,
            Self::Managed => EPERM,
            Self::Forbidden(error) | Self::System(error) => error.raw_os_error().unwrap_or(EIO),
        }
    }
}

impl fmt::Display for InterruptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str(
                "it has no interrupts; threads of its NAPI instances (napi@) and receive packet \
                 steering can be placed instead",
            ),
            Self::Down => f.write_str("it is down and has no interrupts until it is up"),
            Self::NoChannel { channel, channels } => {
                write!(
                    f,
                    "no interrupt of channel {channel}: it has {channels} channels, from 0 on"
                )
            }
            Self::Offline => f.write_str("none of these CPUs is online"),
            Self::Managed => f.write_str(
                "the kernel places this interrupt itself; threads of NAPI instances (napi@) can be \
                 placed instead",
            ),
            Self::Forbidden(error) => write!(f, "placing interrupts needs root: {error}"),
            Self::System(error) => write!(f, "interrupts can't be asked for: {error}"),
        }
    }
}

impl std::error::Error for InterruptError {}

/// Milliseconds to wait for the controller to change over.
const ATTEMPTS: u32 = 5;

const EPERM: i32 = 1;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const EROFS: i32 = 30;
const EOVERFLOW: i32 = 75;
const EOPNOTSUPP: i32 = 95;
const ENETDOWN: i32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpus_asked_for_are_those_chosen_until_the_controller_has_one_of_them() {
        for (asked, effective, chosen) in [
            (&[0][..], &[3][..], &[0][..]),
            (&[0, 1], &[1], &[1]),
            (&[0, 1], &[], &[0, 1]),
        ] {
            let affinity = Affinity {
                asked: asked.to_vec(),
                effective: effective.to_vec(),
            };
            assert_eq!(affinity.chosen(), chosen);
        }
    }

    #[test]
    fn a_device_without_interrupts_says_what_can_be_placed() {
        let lo = Device::open("lo").unwrap();
        let none = of_channel(&lo, 0).unwrap_err();
        assert_eq!(none.errno(), EOPNOTSUPP);
        assert!(none.to_string().contains("napi@"), "{none}");
        assert!(affinity(u32::MAX).is_err());
    }
}
