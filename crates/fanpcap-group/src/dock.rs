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
    fn serve(&self, berths: &[(u8, OwnedFd)]) -> io::Result<()>;

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
        self.descriptors().to_vec()
    }

    fn serve(&self, berths: &[(u8, OwnedFd)]) -> io::Result<()> {
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
    lifeline: OwnedFd,
    program: OwnedFd,
}

impl Berth {
    fn deposit(number: u8, steals: bool) -> Deposit {
        Deposit::Lifeline(u64::from_le_bytes([
            number,
            steals.into(),
            0,
            0,
            0,
            0,
            0,
            0,
        ]))
    }

    fn of(deposit: Deposit, descriptors: Vec<OwnedFd>) -> Option<Self> {
        let Deposit::Lifeline(word) = deposit else {
            return None;
        };
        let [number, steals, ..] = word.to_le_bytes();
        let mut descriptors = descriptors.into_iter();
        Some(Self {
            // One that is none would keep all others from being served.
            number: Some(number).filter(|&number| u32::from(number) < BERTHS)?,
            steals: steals != 0,
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
        let deposit = Berth::deposit(number, false);
        self.locker.put(deposit, &[lifeline, program])?;
        faults::step();
        match self.berths().and_then(|all| self.serve(all)) {
            Ok(()) => Ok(Some(number)),
            Err(error) => {
                self.locker.remove(deposit)?;
                let _ = self.lifelines.remove(lifeline);
                // Best effort: the device serves the others as before.
                let _ = self.serve(before);
                Err(error)
            }
        }
    }

    /// The host loses the device's packets as long as the group of this berth is there.
    ///
    /// # Errors
    /// What the locker says.
    pub(crate) fn steal_for(&self, number: u8) -> io::Result<()> {
        let berths = self.berths()?;
        let own = berths.iter().find(|it| it.number == number && !it.steals);
        if let Some(own) = own {
            let parts = [own.lifeline.as_fd(), own.program.as_fd()];
            self.locker.put(Berth::deposit(number, true), &parts)?;
            self.locker.remove(Berth::deposit(number, false))?;
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
        self.serve(left)?;
        for Berth { number, steals, .. } in gone {
            faults::step();
            self.locker.remove(Berth::deposit(number, steals))?;
        }
        Ok(())
    }

    fn serve(&self, berths: Vec<Berth>) -> io::Result<()> {
        let steals = berths.iter().any(|it| it.steals);
        let mut all: Vec<(u8, OwnedFd)> = Vec::new();
        for Berth {
            number, program, ..
        } in berths
        {
            // One that has begun to steal may be there twice.
            if !all.iter().any(|(it, _)| *it == number) {
                all.push((number, program));
            }
        }
        self.device.serve(&all)?;
        self.device.set_steals(steals);
        Ok(())
    }

    /// The berths in use.
    fn berths(&self) -> io::Result<Vec<Berth>> {
        let mut all = Vec::new();
        self.locker.visit(|deposit, descriptors| {
            all.extend(Berth::of(deposit, descriptors));
            true
        })?;
        Ok(all)
    }
}

#[cfg(test)]
mod tests;
