//! The device's own counters, in the thread's network namespace.

use std::io;

use anyhow::{Context, Result};
use fanpcap_config::device::{ANY, Device};
use fanpcap_linux::interface;
use fanpcap_linux::netlink::link;
use fanpcap_linux::wait::clock;
use serde::Serialize;

/// The network interfaces that a device string names.
#[derive(Debug)]
pub(super) struct Link {
    /// The indices of the interfaces, without duplicates. `None` means all interfaces (the device
    /// `any`).
    indices: Option<Vec<u32>>,
}

/// The network interface that a device string names; `None` if the string names several interfaces,
/// or no interface.
pub(super) fn base(device: &str) -> Option<String> {
    let device = Device::classify(device, |name| interface::index(name).is_some());
    match device.parts() {
        [part] => Some(part.base.clone()),
        _ => None,
    }
}

/// The first network interface in a device string that does not exist.
pub(super) fn missing(device: &str) -> Option<String> {
    let device = Device::classify(device, |name| interface::index(name).is_some());
    let mut bases = device.parts().iter().map(|part| &part.base);
    let missing = bases.find(|base| *base != ANY && interface::index(base).is_none());
    missing.cloned()
}

/// The sum of the interfaces' counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counters {
    /// Packets received.
    pub(super) received: u64,
    /// Packets dropped on receipt, by the device or before the kernel's first packet handler.
    pub(super) dropped: u64,
}

/// Counters with the time of their reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) counters: Counters,
    at_ns: u64,
}

impl Link {
    /// The interfaces of `device`; `None` if the device is not a network interface, like `nflog`
    /// and `usbmon1`.
    pub(super) fn of(device: &str) -> Option<Self> {
        let device = Device::classify(device, |name| interface::index(name).is_some());
        let parts = device.parts().iter();
        if parts.clone().any(|part| part.base == ANY) {
            return Some(Self { indices: None });
        }
        let indices = parts.map(|part| interface::index(&part.base));
        let mut indices: Vec<u32> = indices.collect::<Option<_>>()?;
        indices.sort_unstable();
        indices.dedup();
        Some(Self {
            indices: Some(indices),
        })
    }

    /// Reads the counters; `None` if an interface is gone.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub(super) fn read(&self) -> Result<Option<Reading>> {
        let at_ns = clock::monotonic_ns();
        let links = match &self.indices {
            Some(indices) => indices.iter().map(|&index| link::get(index)).collect(),
            None => link::links(),
        };
        match links {
            Ok(links) => Ok(Some(Reading {
                counters: sum(&links),
                at_ns,
            })),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error).context("asking the kernel for the device's counters"),
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(ENODEV)
}

/// The kernel's error for an absent device (asm-generic/errno-base.h).
const ENODEV: i32 = 19;

fn sum(links: &[link::Link]) -> Counters {
    let mut sum = Counters::default();
    for link in links {
        sum.received += link.counters.rx_packets;
        // The kernel counts each packet in only one of the two counters. `ip -s` shows both, and
        // /proc/net/dev shows their sum.
        sum.dropped += link.counters.rx_dropped + link.counters.rx_missed;
    }
    sum
}

impl Reading {
    /// The difference to `before`, and the time between the readings in nanoseconds.
    pub(super) fn since(self, before: Self) -> (Counters, u64) {
        let counters = self.counters.since(before.counters);
        (counters, self.at_ns.saturating_sub(before.at_ns))
    }
}

impl Counters {
    /// The difference to `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            received: self.received.saturating_sub(before.received),
            dropped: self.dropped.saturating_sub(before.dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_or_missed_is_added_up_over_the_devices() {
        let counters = link::Counters {
            rx_packets: 100,
            rx_dropped: 7,
            rx_missed: 2,
            rx_fifo: 2,
            ..link::Counters::default()
        };
        let link = link::Link {
            counters,
            ..link::Link::default()
        };
        let both = Counters {
            received: 200,
            dropped: 18,
        };
        assert_eq!(sum(&[link.clone(), link]), both);
    }

    #[test]
    fn a_device_that_is_named_twice_is_counted_once_and_one_that_has_gone_not_at_all() {
        let once = Link::of("lo^lo:1").unwrap();
        assert_eq!(once.indices, Link::of("lo").unwrap().indices);
        assert!(once.read().unwrap().is_some());
        assert!(Link::of(ANY).unwrap().read().unwrap().is_some());
        let indices = Some(vec![u32::MAX / 2]);
        assert!(Link { indices }.read().unwrap().is_none());
    }

    #[test]
    fn only_network_interfaces_have_a_link() {
        assert!(Link::of("nflog:5").is_none());
        assert!(Link::of("no such device").is_none());
    }
}
