//! `ps_ifdrop` of a handle whose device was replaced.

use std::ffi::c_uint;

/// The total of `ps_ifdrop` over successive devices of one name. The system's library adds the
/// changes of the device's counter, which begins with 0 again on a new device.
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
}
