//! The interrupts of a device's channels, and the CPUs to which they are delivered.

pub mod names;

use crate::device::Device;
use crate::error::DeviceError;
use fanpcap_linux::netlink::netdev;
use fanpcap_linux::process::cpu;
use names::Known;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io, thread};

/// An interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// The kernel's number.
    pub number: u32,
    /// The name in `/proc/interrupts`, or `queue-N` if only the driver reports that the interrupt
    /// serves channel N.
    pub name: String,
    /// The part of the device that the interrupt serves.
    pub serves: Serves,
}

/// The part of a device that an interrupt serves.
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
    /// The CPUs that were requested for the interrupt.
    pub asked: Vec<usize>,
    /// The CPUs to which the interrupt controller delivers. The kernel chooses one of the requested
    /// CPUs.
    pub effective: Vec<usize>,
}

/// The interrupts of a device, in the order of their numbers.
///
/// # Errors
/// [`DeviceError::NoInterrupts`], [`DeviceError::Down`] and [`DeviceError::Failed`].
pub fn of_device(device: &Device) -> Result<Vec<Interrupt>, DeviceError> {
    let table = fs::read_to_string("/proc/interrupts").map_err(unknown)?;
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
        (true, true) => Err(DeviceError::NoInterrupts),
        (true, false) => Err(DeviceError::Down),
        _ => Ok(found),
    }
}

/// The numbers of a device's interrupts. Prefers the numbers from sysfs, because a container may
/// hide the lines of `/proc/interrupts`.
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

/// The interrupts of a device's channel: one for both directions, or one for each direction.
///
/// # Errors
/// As [`of_device`], and [`DeviceError::NoChannel`].
pub fn of_channel(device: &Device, channel: u32) -> Result<Vec<Interrupt>, DeviceError> {
    let mut all = of_device(device)?;
    let channels = all.iter().filter_map(|it| Some(it.serves.channel()? + 1));
    let channels = channels.max().unwrap_or(0);
    all.retain(|it| it.serves.channel() == Some(channel));
    match all.is_empty() {
        true => Err(DeviceError::NoChannel { channel, channels }),
        false => Ok(all),
    }
}

/// The CPUs of the interrupt with this number.
///
/// # Errors
/// [`DeviceError::Failed`].
pub fn affinity(number: u32) -> Result<Affinity, DeviceError> {
    let read = |file: &str| {
        let text = fs::read_to_string(place(number, file)).map_err(unknown)?;
        let malformed = || unknown(io::ErrorKind::InvalidData.into());
        cpu::list(text.trim()).ok_or_else(malformed)
    };
    let asked = read("smp_affinity_list")?;
    Ok(Affinity {
        // The file is missing before Linux 4.13, and on some architectures.
        effective: read("effective_affinity_list").unwrap_or_else(|_| asked.clone()),
        asked,
    })
}

/// Sets the CPUs of the interrupt with this number. Waits some milliseconds for the controller,
/// which may start to use the new CPUs only at the next interrupt.
///
/// # Errors
/// [`DeviceError`].
pub fn set_affinity(number: u32, cpus: &[usize]) -> Result<(), DeviceError> {
    let list = cpu::list_text(cpus);
    let written = fs::write(place(number, "smp_affinity_list"), list);
    written.map_err(|error| match error.raw_os_error() {
        // The kernel returns EIO for a managed interrupt (kernel/irq/proc.c,
        // `write_irq_affinity()`).
        Some(libc::EIO) => DeviceError::Managed,
        Some(libc::EINVAL | libc::EOVERFLOW) => DeviceError::Offline,
        Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
            DeviceError::Failed("placing interrupts needs root", error)
        }
        _ => unknown(error),
    })?;
    for attempt in 0..ATTEMPTS {
        let Affinity { effective, .. } = affinity(number)?;
        // If no driver has requested the interrupt yet, `effective` is empty, and there is nothing
        // to wait for.
        if effective.iter().all(|cpu| cpus.contains(cpu)) {
            break;
        }
        if attempt + 1 < ATTEMPTS {
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// The numbers of a device's message-signaled interrupts, from `msi_irqs` in sysfs. The interrupts
/// of a virtio device belong to the PCI device above it.
fn message_numbers(device: &Device) -> Vec<u32> {
    let list = |path| -> Vec<u32> {
        let names = device.names(path);
        names.filter_map(|name| name.parse().ok()).collect()
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

/// Adds the interrupts of receive queues that the driver reported to the kernel. These reports have
/// precedence over the names in `/proc/interrupts`.
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

fn unknown(error: io::Error) -> DeviceError {
    DeviceError::Failed("interrupts can't be listed", error)
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
    /// The CPUs that the controller has chosen from the requested CPUs, or all requested CPUs while
    /// the controller still delivers to other CPUs.
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

/// Number of checks, a millisecond apart, whether the controller uses the new CPUs.
const ATTEMPTS: u32 = 5;

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
        assert_eq!(none.errno(), libc::EOPNOTSUPP);
        assert!(none.to_string().contains("napi@"), "{none}");
        assert!(affinity(u32::MAX).is_err());
    }
}
