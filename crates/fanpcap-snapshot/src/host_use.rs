//! Checks whether the host has begun to use devices whose packets are stolen from it (`steal =
//! yes`). The library checks only when a handle is activated. The commands that watch a group
//! continue to check.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use fanpcap_linux::netlink::host_use;

/// The least time between two checks.
const PERIOD: Duration = Duration::from_secs(2);

/// The pause after a check is at least this many times as long as the check, which takes long if
/// there are many routes.
const REST: u32 = 20;

/// The results of the last check.
#[derive(Debug, Default)]
pub struct HostUse {
    devices: BTreeSet<u32>,
    next: Option<Instant>,
    reasons: BTreeMap<u32, &'static str>,
}

impl HostUse {
    /// The devices of `devices` whose packets the host or a container may need, each with the
    /// reason. Repeats the last result until the next check is due. A device is left out if the
    /// kernel can't be asked about it.
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
