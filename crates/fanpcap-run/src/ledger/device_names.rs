//! The names of the copies' devices. A device that is removed and created again has the same name
//! and another index.

use std::collections::{BTreeMap, BTreeSet};

use fanpcap_linux::interface;

/// The devices on which copies have had members, with their last names.
#[derive(Debug, Default)]
pub(super) struct DeviceNames {
    names: BTreeMap<u32, String>,
    /// The devices of each copy.
    of_copy: BTreeMap<usize, BTreeSet<u32>>,
    /// The names of each copy's devices.
    names_of: BTreeMap<usize, BTreeSet<String>>,
}

/// Whether no device has this index. False for index 0, which means all devices.
pub(super) fn is_gone(ifindex: u32) -> bool {
    ifindex != 0 && matches!(interface::find_name(ifindex), Ok(None))
}

impl DeviceNames {
    /// Notes that a copy has a member on a device.
    pub(super) fn note(&mut self, copy: usize, ifindex: u32) {
        if let Some(name) = interface::name(ifindex) {
            self.names_of.entry(copy).or_default().insert(name.clone());
            self.names.insert(ifindex, name);
            self.of_copy.entry(copy).or_default().insert(ifindex);
        }
    }

    /// Notes the present names of all devices.
    pub(super) fn refresh(&mut self) {
        for (ifindex, name) in &mut self.names {
            let Some(now) = interface::name(*ifindex).filter(|now| now != name) else {
                continue;
            };
            for (copy, names) in &mut self.names_of {
                let is_its = self
                    .of_copy
                    .get(copy)
                    .is_some_and(|it| it.contains(ifindex));
                if is_its && names.remove(name) {
                    names.insert(now.clone());
                }
            }
            *name = now;
        }
    }

    /// The last name of a device.
    pub(super) fn name(&self, ifindex: u32) -> Option<&str> {
        self.names.get(&ifindex).map(String::as_str)
    }

    /// Whether the device `gone` is gone and `other` has its name.
    pub(super) fn is_successor(&self, gone: u32, other: u32) -> bool {
        let name = self.name(gone);
        other != gone && name.is_some() && name == self.name(other) && is_gone(gone)
    }

    /// The names of all devices of a copy, if one of them is gone; see
    /// [`super::Ledger::lost_devices`].
    pub(super) fn lost(&mut self, copy: usize) -> BTreeSet<String> {
        let Some(devices) = self.of_copy.get_mut(&copy) else {
            return BTreeSet::new();
        };
        let before = devices.len();
        devices.retain(|&ifindex| !is_gone(ifindex));
        let names = self.names_of.get(&copy).cloned().unwrap_or_default();
        let is_missing = |name: &String| matches!(interface::find(name), Ok(None));
        match devices.len() < before || names.iter().any(is_missing) {
            true => names,
            false => BTreeSet::new(),
        }
    }
}
