//! Whether the host has begun to use devices whose packets it does not get (`steal = yes`). The
//! library looks when a handle is activated; the commands that look at a group look on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fanpcap_linux::netlink::host_use;

/// The least time between two looks.
const PERIOD: Duration = Duration::from_secs(2);

/// A look that takes long, as with many routes, has so many times as long to the next.
const REST: u32 = 20;

/// What was seen last.
#[derive(Debug, Default)]
pub struct HostUse {
    devices: BTreeSet<u32>,
    next: Option<Instant>,
    reasons: BTreeMap<u32, &'static str>,
}

impl HostUse {
    /// Why the host or a container may need what these devices receive. Devices that the kernel
    /// tells nothing of have no reason.
    pub fn look(&mut self, devices: BTreeSet<u32>) -> &BTreeMap<u32, &'static str> {
        let begin = Instant::now();
        if devices != self.devices || self.next.is_some_and(|next| begin >= next) {
            let reason = |&device: &u32| Some((device, host_use::of(device).ok()??));
            self.reasons = devices.iter().filter_map(reason).collect();
            self.next = Some(begin + PERIOD.max(begin.elapsed() * REST));
            self.devices = devices;
        }
        &self.reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanpcap_linux::interface;

    #[test]
    fn the_loopback_device_is_the_hosts_and_what_was_seen_holds_for_a_while() {
        let lo = interface::index("lo").unwrap();
        let mut seen = HostUse::default();
        assert!(seen.look(BTreeSet::new()).is_empty());
        let reasons = seen.look(BTreeSet::from([lo, u32::MAX / 2])).clone();
        assert_eq!(reasons.into_keys().collect::<Vec<_>>(), [lo]);
        let next = seen.next;
        seen.look(BTreeSet::from([lo, u32::MAX / 2]));
        assert_eq!(seen.next, next);
    }
}
