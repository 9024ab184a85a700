//! A device's dock: what all groups on the device share, where one program in the driver serves
//! them all. It belongs to nobody: members of every group on the device have both ends of its
//! locker, and the kernel frees it with the last of them.
//!
//! Each group has a berth. Its lifeline's end that hangs up lies in the dock's locker, the other
//! end in the group's. So the dock learns when a group's last member is gone, however that died.
//! Then any member of another group on the device clears the berth.
//!
//! Whoever uses the locker has the dock's turn (`crate::turn`).

use crate::faults;
use crate::locker::{Deposit, Locker};
use fanpcap_linux::wait::{Epoll, pipe};
use fanpcap_xdp::BERTHS;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The engine's part of a dock.
pub(crate) trait Device: Sized {
    /// The device behind these descriptors, in the order of [`Device::descriptors`]. `NotFound`
    /// when the engine has lost the device.
    fn of(descriptors: Vec<OwnedFd>, ifindex: u32) -> io::Result<Self>;

    /// The descriptors that another process needs for it.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Gives the device's packets to the groups of these berths alone, each with its BPF program.
    /// It can be done again from its beginning.
    fn serve(&self, berths: &[(u8, BorrowedFd<'_>)]) -> io::Result<()>;

    /// Whether the host loses the packets.
    fn set_steals(&self, steals: bool);
}

impl Device for fanpcap_xdp::Device {
    fn of(descriptors: Vec<OwnedFd>, ifindex: u32) -> io::Result<Self> {
        let device = Self::open(descriptors)?;
        match device.ifindex()? {
            // The device is gone, or its BPF program was detached.
            0 => Err(io::ErrorKind::NotFound.into()),
            found if found == ifindex => Ok(device),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.descriptors()
    }

    fn serve(&self, berths: &[(u8, BorrowedFd<'_>)]) -> io::Result<()> {
        self.serve(berths)
    }

    fn set_steals(&self, steals: bool) {
        self.set_steals(steals);
    }
}

/// A group's place on a device.
struct Berth {
    number: u8,
    /// Whether the group asks that the host lose the packets.
    steals: bool,
    /// Rises by one, modulo 256, with each exchange of the group's BPF program. The newest holds.
    version: u8,
    lifeline: OwnedFd,
    program: OwnedFd,
}

impl Berth {
    fn deposit(number: u8, steals: bool, version: u8) -> Deposit {
        let head = [number, steals.into(), version, 0];
        Deposit::Lifeline(u32::from_le_bytes(head).into())
    }

    /// What it is in the locker.
    fn own_deposit(&self) -> Deposit {
        Self::deposit(self.number, self.steals, self.version)
    }

    /// Whether `all` have no newer one of its number.
    fn is_newest(&self, all: &[Self]) -> bool {
        let is_newer = |it: &Self| (1..128).contains(&it.version.wrapping_sub(self.version));
        !all.iter()
            .any(|it| it.number == self.number && is_newer(it))
    }

    fn of(deposit: Deposit, descriptors: Vec<OwnedFd>) -> Option<Self> {
        let Deposit::Lifeline(word) = deposit else {
            return None;
        };
        let [number, steals, version, ..] = word.to_le_bytes();
        let mut descriptors = descriptors.into_iter();
        Some(Self {
            // One that is none would keep all others from being served.
            number: Some(number).filter(|&number| u32::from(number) < BERTHS)?,
            steals: steals != 0,
            version,
            lifeline: descriptors.next()?,
            program: descriptors.next()?,
        })
    }
}

/// The dock of one device, in one process.
#[derive(Debug)]
pub(crate) struct Dock<D> {
    locker: Locker,
    /// Readable while the last member of a group is gone whose berth nobody has cleared.
    lifelines: Epoll,
    device: D,
}

impl<D: Device> Dock<D> {
    /// The dock of a device that has none yet.
    ///
    /// # Errors
    /// `EMFILE` and the like.
    pub(crate) fn new(device: D, ifindex: u32) -> io::Result<Self> {
        let dock = Self {
            locker: Locker::new()?,
            lifelines: Epoll::new()?,
            device,
        };
        let (deposit, parts) = (Deposit::Engine(ifindex.into()), dock.device.descriptors());
        dock.locker.put(deposit, &parts)?;
        let lifelines = [dock.lifelines.as_fd()];
        dock.locker.put(Deposit::Lifelines, &lifelines)?;
        Ok(dock)
    }

    /// The dock of a device, by both ends of its locker.
    ///
    /// # Errors
    /// When it is no dock, or another device's.
    pub(crate) fn of([into, out_of]: [OwnedFd; 2], ifindex: u32) -> io::Result<Self> {
        let (locker, lifelines) = Locker::of(into, out_of)?;
        let parts = locker.find(Deposit::Engine(ifindex.into()))?;
        let parts = parts.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Self {
            locker,
            lifelines: Epoll::from(lifelines),
            device: D::of(parts, ifindex)?,
        })
    }

    /// Both ends of the locker.
    pub(crate) fn ends(&self) -> [BorrowedFd<'_>; 2] {
        self.locker.ends()
    }

    /// The engine's part.
    pub(crate) fn device(&self) -> &D {
        &self.device
    }

    /// What a member of each group waits on.
    pub(crate) fn lifelines(&self) -> BorrowedFd<'_> {
        self.lifelines.as_fd()
    }

    /// Whether a berth is to be cleared.
    pub(crate) fn has_gone(&self) -> bool {
        self.lifelines.is_ready().unwrap_or(true)
    }

    /// Gives a group a berth, and so the device's packets. `program` is the group's BPF program,
    /// `lifeline` the end of the group's lifeline that hangs up. `None` when there is no berth.
    ///
    /// # Errors
    /// What the engine and the locker say. The berth is free again then.
    pub(crate) fn moor(
        &self,
        program: BorrowedFd<'_>,
        lifeline: BorrowedFd<'_>,
    ) -> io::Result<Option<u8>> {
        self.clear()?;
        let before = self.berths()?;
        let is_free = |number: &u8| !before.iter().any(|it| it.number == *number);
        let Some(number) = (0..=u8::MAX).take(BERTHS as usize).find(is_free) else {
            return Ok(None);
        };
        self.locker.ensure_room()?;
        self.lifelines.add(lifeline, false)?;
        faults::step();
        let deposit = Berth::deposit(number, false, 0);
        self.locker.put(deposit, &[lifeline, program])?;
        faults::step();
        match self.berths().and_then(|all| self.serve(&all)) {
            Ok(()) => Ok(Some(number)),
            Err(error) => {
                self.locker.remove(deposit)?;
                let _ = self.lifelines.remove(lifeline);
                // Best effort: the device serves the others as before.
                let _ = self.serve(&before);
                Err(error)
            }
        }
    }

    /// Exchanges a group's BPF program for another. Returns the former.
    ///
    /// # Errors
    /// What the engine and the locker say; `NotFound` for a berth that nobody has. The group has
    /// its former BPF program then.
    pub(crate) fn exchange(&self, number: u8, program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let before = self.berths()?;
        let mut own = before.iter().filter(|it| it.number == number);
        let own = own.find(|it| it.is_newest(&before));
        let own = own.ok_or(io::ErrorKind::NotFound)?;
        self.locker.ensure_room()?;
        let former = own.program.try_clone()?;
        let next = Berth::deposit(number, own.steals, own.version.wrapping_add(1));
        faults::step();
        self.locker.put(next, &[own.lifeline.as_fd(), program])?;
        faults::step();
        if let Err(error) = self.berths().and_then(|all| self.serve(&all)) {
            self.locker.remove(next)?;
            // Best effort: the device serves the groups as before.
            let _ = self.serve(&before);
            return Err(error);
        }
        for old in before.iter().filter(|it| it.number == number) {
            faults::step();
            // Best effort: the newest holds.
            let _ = self.locker.remove(old.own_deposit());
        }
        Ok(former)
    }

    /// The host loses the device's packets as long as the group of this berth is there.
    ///
    /// # Errors
    /// What the locker says.
    pub(crate) fn steal_for(&self, number: u8) -> io::Result<()> {
        let berths = self.berths()?;
        let mut own = berths.iter().filter(|it| it.number == number);
        let own = own.find(|it| it.is_newest(&berths) && !it.steals);
        if let Some(own) = own {
            let parts = [own.lifeline.as_fd(), own.program.as_fd()];
            let deposit = Berth::deposit(number, true, own.version);
            self.locker.put(deposit, &parts)?;
            self.locker.remove(own.own_deposit())?;
        }
        self.device.set_steals(true);
        Ok(())
    }

    /// Clears the berths of groups whose last members are gone.
    ///
    /// # Errors
    /// What the engine and the locker say; somebody tries again.
    pub(crate) fn clear(&self) -> io::Result<()> {
        // One that can't be asked counts as alive.
        let is_gone = |it: &Berth| pipe::has_hung_up(it.lifeline.as_fd()).unwrap_or(false);
        let (gone, left): (Vec<_>, Vec<_>) = self.berths()?.into_iter().partition(is_gone);
        if gone.is_empty() {
            return Ok(());
        }
        self.serve(&left)?;
        for berth in gone {
            faults::step();
            self.locker.remove(berth.own_deposit())?;
        }
        Ok(())
    }

    fn serve(&self, berths: &[Berth]) -> io::Result<()> {
        let steals = berths.iter().any(|it| it.steals);
        let mut all: Vec<(u8, BorrowedFd<'_>)> = Vec::new();
        for berth in berths.iter().filter(|it| it.is_newest(berths)) {
            // One that has begun to steal may be there twice.
            if !all.iter().any(|(it, _)| *it == berth.number) {
                all.push((berth.number, berth.program.as_fd()));
            }
        }
        self.device.serve(&all)?;
        self.device.set_steals(steals);
        Ok(())
    }

    /// The berths in use.
    fn berths(&self) -> io::Result<Vec<Berth>> {
        let mut all = Vec::new();
        self.locker.visit(&mut |deposit, descriptors| {
            all.extend(Berth::of(deposit, descriptors));
            true
        })?;
        Ok(all)
    }
}

#[cfg(test)]
mod tests;
