//! The registry of the groups that share a device. One BPF program in the driver serves all these
//! groups. The registry determines which groups get the packets. No process owns the registry.
//! Members of every group on the device have both ends of the registry's descriptor store. When the
//! last member ends, the kernel frees the registry.
//!
//! Each group has a group slot. The read end of the group's lifeline is in the registry's
//! descriptor store, and the write end is in the group's descriptor store. When a group's last
//! member has ended for any reason, the kernel hangs up the read end. Any member of another group
//! then clears the group slot.
//!
//! Callers hold the device's lock. A caller that also needs a group's lock takes the group's lock
//! first.

use crate::device::{Device, ServedDevice};
use crate::layout::GROUP_SLOTS;
use fanpcap_engine::faults;
use fanpcap_engine::fd_store::{FdStore, StoredFd};
use fanpcap_linux::wait::{Epoll, pipe};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

struct GroupSlot {
    number: u8,
    /// Whether the host loses the packets at the group's request.
    steals: bool,
    /// The version of the entry. Each replacement of the group's BPF program increments the version
    /// by one, modulo 256. Of several entries for a group slot, the newest version is valid.
    version: u8,
    lifeline: OwnedFd,
    program: OwnedFd,
}

impl GroupSlot {
    fn entry(number: u8, steals: bool, version: u8) -> StoredFd {
        let head = [number, steals.into(), version, 0];
        StoredFd::Lifeline(u32::from_le_bytes(head).into())
    }

    /// The group slot's entry in the descriptor store.
    fn own_entry(&self) -> StoredFd {
        Self::entry(self.number, self.steals, self.version)
    }

    /// Whether `all` has no newer entry for the same group slot.
    fn is_newest(&self, all: &[Self]) -> bool {
        let is_newer = |it: &Self| (1..128).contains(&it.version.wrapping_sub(self.version));
        !all.iter()
            .any(|it| it.number == self.number && is_newer(it))
    }

    fn of(entry: StoredFd, descriptors: Vec<OwnedFd>) -> Option<Self> {
        let StoredFd::Lifeline(word) = entry else {
            return None;
        };
        let [number, steals, version, ..] = word.to_le_bytes();
        let mut descriptors = descriptors.into_iter();
        Some(Self {
            // An entry with a number beyond the last group slot would prevent the device from
            // serving the other groups. So such an entry is ignored.
            number: Some(number).filter(|&number| u32::from(number) < GROUP_SLOTS)?,
            steals: steals != 0,
            version,
            lifeline: descriptors.next()?,
            program: descriptors.next()?,
        })
    }
}

/// The registry of one device, in one process.
pub struct DeviceRegistry<D = Device> {
    store: FdStore,
    /// Watches the groups' lifelines. Readable while the group slot of a group without members has
    /// not been cleared. The members of all groups wait on it.
    pub(crate) lifelines: Epoll,
    device: D,
}

impl<D: ServedDevice> DeviceRegistry<D> {
    /// Makes the registry of a device that has no registry yet.
    ///
    /// # Errors
    /// `EMFILE`, and other errors of the descriptor store and of epoll_create1(2).
    pub fn new(device: D, ifindex: u32) -> io::Result<Self> {
        let registry = Self {
            store: FdStore::new()?,
            lifelines: Epoll::new()?,
            device,
        };
        let parts = registry.device.descriptors();
        let entry = StoredFd::Engine(ifindex.into());
        registry.store.put(entry, &parts)?;
        let lifelines = [registry.lifelines.as_fd()];
        registry.store.put(StoredFd::Lifelines, &lifelines)?;
        Ok(registry)
    }

    /// Opens a device's registry from both ends of its descriptor store.
    ///
    /// # Errors
    /// `InvalidData` when the ends belong to no registry, or to the registry of another device. The
    /// errors of [`ServedDevice::of`].
    pub fn of([into, out_of]: [OwnedFd; 2], ifindex: u32) -> io::Result<Self> {
        let (store, lifelines) = FdStore::of(into, out_of)?;
        let parts = store.find(StoredFd::Engine(ifindex.into()))?;
        let parts = parts.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self {
            store,
            lifelines: Epoll::from(lifelines),
            device: D::of(parts, ifindex)?,
        })
    }

    /// Both ends of the descriptor store.
    pub fn ends(&self) -> [BorrowedFd<'_>; 2] {
        self.store.ends()
    }

    /// The device that the registry serves.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Whether some group is gone and its group slot is not cleared yet. Also true if this can't be
    /// checked.
    pub fn has_gone(&self) -> bool {
        self.lifelines.is_ready().unwrap_or(true)
    }

    /// Gives a group a free group slot, so that the group gets the device's packets. `program` is
    /// the group's BPF program, `lifeline` the read end of the group's lifeline. Returns the group
    /// slot's number. `None` when all group slots are taken.
    ///
    /// # Errors
    /// The errors of the device and of the descriptor store. After an error, the group slot is free
    /// again.
    pub fn attach(
        &self,
        program: BorrowedFd<'_>,
        lifeline: BorrowedFd<'_>,
    ) -> io::Result<Option<u8>> {
        self.clear()?;
        let before = self.slots()?;
        let is_free = |number: &u8| !before.iter().any(|it| it.number == *number);
        let Some(number) = (0..=u8::MAX).take(GROUP_SLOTS as usize).find(is_free) else {
            return Ok(None);
        };
        self.store.ensure_room()?;
        self.lifelines.add(lifeline, false)?;
        faults::step();
        let entry = GroupSlot::entry(number, false, 0);
        self.store.put(entry, &[lifeline, program])?;
        faults::step();
        match self.slots().and_then(|all| self.serve(&all)) {
            Ok(()) => Ok(Some(number)),
            Err(error) => {
                self.store.remove(entry)?;
                let _ = self.lifelines.remove(lifeline);
                // Best effort: the device continues to serve the other groups.
                let _ = self.serve(&before);
                Err(error)
            }
        }
    }

    /// Replaces the BPF program of the group in a group slot. Returns the former BPF program.
    ///
    /// # Errors
    /// `NotFound` for a free group slot; errors of the device and of the descriptor store. After an
    /// error, the group keeps its former BPF program.
    pub fn exchange(&self, number: u8, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let before = self.slots()?;
        let mut own = before.iter().filter(|it| it.number == number);
        let own = own.find(|it| it.is_newest(&before));
        let own = own.ok_or(io::ErrorKind::NotFound)?;
        self.store.ensure_room()?;
        let former = own.program.try_clone()?;
        let next = GroupSlot::entry(number, own.steals, own.version.wrapping_add(1));
        faults::step();
        self.store.put(next, &[own.lifeline.as_fd(), program])?;
        faults::step();
        if let Err(error) = self.slots().and_then(|all| self.serve(&all)) {
            self.store.remove(next)?;
            // Best effort: makes the device serve the groups with their former BPF programs.
            let _ = self.serve(&before);
            return Err(error);
        }
        for old in before.iter().filter(|it| it.number == number) {
            faults::step();
            // Best effort: if the removal fails, the newest version is valid all the same.
            let _ = self.store.remove(old.own_entry());
        }
        Ok(former)
    }

    /// Sets whether the host loses the device's packets for the group in this group slot, until the
    /// group is gone. The host loses them as long as any group `steals` them.
    ///
    /// # Errors
    /// The errors of the descriptor store. After an error, another call completes the change.
    pub fn steal_for(&self, number: u8, steals: bool) -> io::Result<()> {
        let slots = self.slots()?;
        let mut is_stolen = steals;
        for own in &slots {
            if own.number != number {
                is_stolen |= own.steals;
            } else if own.steals != steals {
                if own.is_newest(&slots) {
                    let parts = [own.lifeline.as_fd(), own.program.as_fd()];
                    let entry = GroupSlot::entry(number, steals, own.version);
                    self.store.put(entry, &parts)?;
                    faults::step();
                }
                // Removes the entry that a process left which died within this change, too.
                self.store.remove(own.own_entry())?;
            }
        }
        self.device.set_steals(is_stolen);
        Ok(())
    }

    /// Clears the group slots of groups whose last members have ended.
    ///
    /// # Errors
    /// The errors of the device and of the descriptor store. After an error, another call completes
    /// the change.
    pub fn clear(&self) -> io::Result<()> {
        // A lifeline that can't be polled counts as alive.
        let is_gone = |it: &GroupSlot| pipe::has_hung_up(it.lifeline.as_fd()).unwrap_or(false);
        let (gone, left): (Vec<_>, Vec<_>) = self.slots()?.into_iter().partition(is_gone);
        if gone.is_empty() {
            return Ok(());
        }
        self.serve(&left)?;
        for slot in gone {
            faults::step();
            self.store.remove(slot.own_entry())?;
        }
        Ok(())
    }

    fn serve(&self, slots: &[GroupSlot]) -> io::Result<()> {
        let steals = slots.iter().any(|it| it.steals);
        let mut all: Vec<(u8, BorrowedFd<'_>)> = Vec::new();
        for slot in slots.iter().filter(|it| it.is_newest(slots)) {
            // A process that died in `steal_for` may have left a second entry of the same version.
            if !all.iter().any(|(it, _)| *it == slot.number) {
                all.push((slot.number, slot.program.as_fd()));
            }
        }
        self.device.serve(&all)?;
        self.device.set_steals(steals);
        Ok(())
    }

    /// Returns the group slots that are taken.
    fn slots(&self) -> io::Result<Vec<GroupSlot>> {
        let mut all = Vec::new();
        self.store.visit(&mut |entry, descriptors| {
            all.extend(GroupSlot::of(entry, descriptors));
            true
        })?;
        Ok(all)
    }
}

#[cfg(test)]
mod tests;
