//! `ps_ifdrop` of a handle whose device or poller was replaced.

use std::ffi::c_uint;

/// The total of `ps_ifdrop` over successive devices of one name, and over the handle's former
/// pollers. The system's library adds the changes of the device's counter, which begins with 0
/// again on a new device.
#[derive(Debug, Default)]
pub(crate) struct DeviceDrops {
    last: c_uint,
    total: c_uint,
}

impl DeviceDrops {
    /// Returns the total. `counted` is the system's counter, which decreases with a new device.
    pub(crate) fn total(&mut self, counted: c_uint) -> c_uint {
        let change = counted.wrapping_sub(self.last);
        self.last = counted;
        if change <= c_uint::MAX / 2 {
            self.total = self.total.wrapping_add(change);
        }
        self.total
    }

    /// Adds what the source of a poller has dropped. The handle leaves this poller.
    pub(crate) fn add_missed(&mut self, missed: u64) {
        self.total = self.total.wrapping_add(wrapped(missed));
    }
}

/// libpcap's counters are 32 bits wide and wrap.
pub(crate) fn wrapped(counter: u64) -> c_uint {
    let [a, b, c, d, ..] = counter.to_le_bytes();
    c_uint::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drops_of_a_new_device_are_added() {
        let mut drops = DeviceDrops::default();
        assert_eq!([2, 5].map(|counted| drops.total(counted)), [2, 5]);
        // The device had dropped 100 packets before the handle was opened, and is gone.
        let gone = 5_u32.wrapping_sub(105);
        assert_eq!(drops.total(gone), 5);
        assert_eq!(drops.total(gone.wrapping_add(7)), 12);
    }

    #[test]
    fn the_drops_of_former_pollers_stay() {
        let mut drops = DeviceDrops::default();
        drops.add_missed(40);
        assert_eq!([2, 5].map(|counted| drops.total(counted)), [42, 45]);
        drops.add_missed(3);
        assert_eq!(drops.total(5), 48);
    }
}
