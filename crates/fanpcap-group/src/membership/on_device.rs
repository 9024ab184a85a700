//! A member's care for its device: what an engine on the device needs from the group's members.

use super::{Failed, Membership};
use crate::exchange;
use crate::guard::GroupGuard;
use fanpcap_linux::wait::clock;
use std::sync::atomic::Ordering;

/// How often a member checks that the device still has the engine that fills its rings. The kernel
/// does not report that an engine was detached.
pub(super) const AT_DEVICE_NS: u64 = 900_000_000;

impl Membership {
    /// Whether the device is gone, or the engine was detached from it. Asks the kernel only if no
    /// packets have come to the group for [`AT_DEVICE_NS`], by the published ledger: the kernel
    /// answers under the lock for network devices (rtnl). While other processes attach BPF
    /// programs, the reader would wait for that lock, and packets would find no room.
    pub(super) fn has_lost_device(&self) -> bool {
        let Some(on_device) = &self.shared.on_device else {
            return false;
        };
        let now_ns = clock::monotonic_ns();
        let offered = self.shared.table().ledger().map_or(0, |it| it.offered);
        if self.offered.swap(offered, Ordering::Relaxed) != offered {
            self.quiet_ns.store(now_ns, Ordering::Relaxed);
        }
        let quiet_ns = self.quiet_ns.load(Ordering::Relaxed);
        let is_quiet = now_ns.saturating_sub(quiet_ns) >= AT_DEVICE_NS;
        if is_quiet {
            self.quiet_ns.store(now_ns, Ordering::Relaxed);
        }
        is_quiet && on_device.is_detached()
    }

    /// Completes an exchange of the group's BPF program that another process left unfinished. Frees
    /// what the device still has for groups that are gone. Returns false if another process holds
    /// the device's guard.
    pub(super) fn clear_device(&self, guard: &GroupGuard) -> Result<bool, Failed> {
        let Some(on_device) = &self.shared.on_device else {
            return Ok(true);
        };
        let is_under_way = exchange::is_under_way(&self.shared);
        if !is_under_way && !self.shared.lifelines.is_ready().unwrap_or(true) {
            return Ok(true);
        }
        let Some(device_guard) = guard.try_device_guard()? else {
            return Ok(false);
        };
        if is_under_way {
            exchange::finish(&self.shared, &device_guard)?;
        }
        on_device.clear()?;
        Ok(true)
    }
}
