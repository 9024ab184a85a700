//! What the device counts, whoever its packets are for: /proc/net/dev of the thread's network namespace.

use std::fs;

use anyhow::{Context, Result};
use fanpcap::device::Device;
use fanpcap_linux::interface;

/// The network interfaces that a device string names.
#[derive(Debug)]
pub(super) struct Link {
    /// None stands for all: the device `any`.
    names: Option<Vec<String>>,
}

/// What they have counted, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Packets received.
    pub(super) received: u64,
    /// Packets dropped on receiving, by the device or before any program was asked.
    pub(super) dropped: u64,
}

impl Link {
    /// None when it is no network interface, as `nflog` and `usbmon1`.
    pub(super) fn of(device: &str) -> Option<Self> {
        let device = Device::classify(device, |name| interface::index(name).is_some());
        let parts = device.parts().iter();
        if parts.clone().any(|part| part.base == "any") {
            return Some(Self { names: None });
        }
        // By its index, as it may have other names beside the one that the table has.
        let name = |base: &str| interface::name(interface::index(base)?);
        let names = parts.map(|part| name(&part.base)).collect::<Option<_>>()?;
        Some(Self { names: Some(names) })
    }

    /// The counters now; none when a device has gone.
    pub(super) fn counters(&self) -> Result<Option<Counters>> {
        const TABLE: &str = "/proc/thread-self/net/dev";
        let table = fs::read_to_string(TABLE).with_context(|| format!("reading {TABLE}"))?;
        Ok(self.sum(&table))
    }

    fn sum(&self, table: &str) -> Option<Counters> {
        let mut sum = Counters::default();
        let mut missing = self.names.clone().unwrap_or_default();
        for (name, counters) in table.lines().filter_map(row) {
            let names = self.names.as_ref();
            if names.is_none_or(|names| names.iter().any(|other| other == name)) {
                missing.retain(|other| other != name);
                sum.received += counters.received;
                sum.dropped += counters.dropped;
            }
        }
        missing.is_empty().then_some(sum)
    }
}

impl Counters {
    /// What was counted since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            received: self.received.saturating_sub(before.received),
            dropped: self.dropped.saturating_sub(before.dropped),
        }
    }
}

/// A device's line: its name, and behind the colon bytes, packets, errors and drops received.
fn row(line: &str) -> Option<(&str, Counters)> {
    let (name, numbers) = line.split_once(':')?;
    let mut numbers = numbers.split_whitespace().map(str::parse);
    let received = numbers.nth(1)?.ok()?;
    let dropped = numbers.nth(1)?.ok()?;
    Some((name.trim(), Counters { received, dropped }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
    lo:    1000      10    0    1    0     0          0         0     1000      10    0    0
  eth0:90000000  123456    7    8    0     0          0         0     5000      50    0    0
 eth01:       1       2    3    4    0     0          0         0        0       0    0    0
";

    #[test]
    fn the_table_is_read_by_name() {
        let link = |names: &[&str]| Link {
            names: Some(names.iter().map(ToString::to_string).collect()),
        };
        let eth0 = Counters {
            received: 123_456,
            dropped: 8,
        };
        assert_eq!(link(&["eth0"]).sum(TABLE), Some(eth0));
        let both = Counters {
            received: 123_466,
            dropped: 9,
        };
        assert_eq!(link(&["eth0", "lo"]).sum(TABLE), Some(both));
        let all = Counters {
            received: 123_468,
            dropped: 13,
        };
        assert_eq!(Link { names: None }.sum(TABLE), Some(all));
        assert_eq!(link(&["eth0", "eth1"]).sum(TABLE), None);
    }

    #[test]
    fn only_network_interfaces_have_a_link() {
        assert!(Link::of("lo").is_some());
        assert!(Link::of("lo^lo:1").is_some());
        assert!(Link::of("nflog:5").is_none());
        assert!(Link::of("no such device").is_none());
    }
}
