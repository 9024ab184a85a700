//! An engine, and a device that the engine has taken.

use crate::fd_store::FdStore;
use crate::ledger::Ledger;
use crate::on_device::OnDevice;
use crate::refusal::Refusal;
use fanpcap_linux::memory::Memory;
use fanpcap_linux::process::pidfd::Process;
use fanpcap_steer::ForEngine;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// An engine takes packets from devices and puts them into members' rings. The caller names a
/// device by the device's index in the calling thread's network namespace.
pub trait Engine: Sync {
    /// The engine's name, as in the setting `driver@DEVICE` and in the prefix of a device's name.
    fn name(&self) -> &'static str;

    /// The engine's number in the groups' tables. No two engines have the same number.
    fn id(&self) -> u8;

    /// Returns the refusal for a `part` of the group or of the member that could not be created
    /// because of `error`.
    fn refusal(&self, part: &'static str, error: io::Error) -> Refusal;

    /// Returns the bytes of the ring that the engine makes on this machine for a member that asks
    /// for `asked` bytes, or for the usual size. `None` if the engine makes none on this machine.
    fn ring_bytes(&self, asked: Option<u32>) -> Option<u64>;

    /// Creates the memory for a new group's table: `len` zeros. The members map the memory, and the
    /// steering program reads it. The memory is a BPF map, or a memory file of
    /// [`fanpcap_linux::file::sealed`].
    ///
    /// # Errors
    /// `EPERM` without the capability that the memory needs; `EMFILE` and the like.
    fn new_table(&self, len: u32) -> io::Result<Memory>;

    /// Checks whether the device is free for the engine, as far as the engine can find out without
    /// taking the device. The check is fast, because the caller holds locks. It needs no
    /// capability.
    ///
    /// # Errors
    /// Why the device is not free.
    fn check(&self, ifindex: u32) -> Result<(), Refusal>;

    /// Takes a device that no process has taken for this engine. The host still gets the device's
    /// packets. The driver may need a while, so the caller holds no lock. If several callers try,
    /// only one gets the device.
    ///
    /// # Errors
    /// Why the engine can't take the device.
    fn take(&self, ifindex: u32) -> Result<Box<dyn TakenDevice>, Refusal>;

    /// Opens a taken device from the [`TakenDevice::descriptors`] of another process. The caller
    /// holds the device's lock.
    ///
    /// # Errors
    /// `NotFound` when the engine has lost the device. `InvalidData` when the descriptors are not
    /// those of a taken device.
    fn open_device(
        &self,
        descriptors: [OwnedFd; 2],
        ifindex: u32,
    ) -> io::Result<Box<dyn TakenDevice>>;

    /// Opens a group's part of a device, from the group's descriptor store and from the
    /// [`OnDevice::device_descriptors`] of another member.
    ///
    /// # Errors
    /// When a descriptor is of the wrong kind.
    fn open_group(
        &self,
        store: &FdStore,
        device: [OwnedFd; 2],
        ifindex: u32,
    ) -> io::Result<Box<dyn OnDevice>>;
}

/// An engine for processes that watch groups from outside. The trait is separate from [`Engine`],
/// because the library that applications load does not need it.
pub trait Watcher: Sync {
    /// The engine's number, as in [`Engine::id`].
    fn id(&self) -> u8;

    /// Opens a group's counters for a process that is not a member. That process can still read the
    /// counters after the group's last member has ended. `process`, with the process id `pid`, is
    /// another process: that of the member in `slot`, whose socket has the cookie `socket`
    /// (`SO_COOKIE`).
    ///
    /// # Errors
    /// `NotFound` if the member has left or has not joined yet; `EPERM` when the caller may not
    /// trace the member's process.
    fn watch_counters(
        &self,
        process: &Process,
        pid: u32,
        slot: u8,
        socket: u64,
    ) -> io::Result<Box<dyn WatchedCounters>>;
}

/// A device that an engine has taken, for all groups on it.
pub trait TakenDevice: Send + Sync {
    /// The two descriptors that all members of all groups on the device share. Newcomers get
    /// duplicates of these descriptors.
    fn descriptors(&self) -> [BorrowedFd<'_>; 2];

    /// A descriptor that is readable while the device still serves a group that has lost its last
    /// member.
    fn lifelines(&self) -> BorrowedFd<'_>;

    /// Begins a group, which gets no packets yet.
    ///
    /// # Errors
    /// Why the group can't begin.
    fn begin(&self, group: &NewGroup<'_>) -> Result<Begun, Refusal>;
}

/// The parts of a new group.
#[derive(Debug)]
pub struct NewGroup<'a> {
    /// The group's steering program.
    pub steering: &'a ForEngine,
    /// The steering program's text, for an engine that steers in another process.
    pub text: &'a str,
    /// The memory of the group's table.
    pub table: BorrowedFd<'a>,
    /// The group's descriptor store, which gets the engine's entries.
    pub store: &'a FdStore,
    /// The index of the group's device.
    pub ifindex: u32,
}

/// A group that has begun on a device.
#[derive(Debug)]
pub struct Begun {
    /// The group's part of the device.
    pub on_device: Box<dyn OnDevice>,
    /// The BPF program or other object that the engine has loaded for received packets. On XDP it
    /// is the BPF program. The group's descriptor store keeps this descriptor.
    pub program: OwnedFd,
    /// Whether the steering program has counters, which the engine increments.
    pub counts: bool,
}

/// A group's counters, held by a process that is not a member. That process keeps only the counters
/// open, no other part of the group.
pub trait WatchedCounters: Send + Sync {
    /// How many packets came for the slot since the group began, dropped ones included, and how
    /// many were dropped. `None` unless the member with the cookie `socket` has the slot, or was
    /// the last member that had it.
    fn counted(&self, slot: u8, socket: u64) -> Option<[u64; 2]>;

    /// Stops the packets for the slot, as [`OnDevice::stop`] does. Does nothing unless the member
    /// with the cookie `socket` has the slot.
    fn stop(&self, slot: u8, socket: u64);

    /// What became of the group's packets so far.
    fn ledger(&self) -> Ledger;
}

// Structs with an `Engine` field need this for their `Debug`. A derived `Debug` would bring the
// `Debug` code of all parts into the library (decision 13).
impl fmt::Debug for dyn Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

impl fmt::Debug for dyn TakenDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TakenDevice")
    }
}

impl fmt::Debug for dyn WatchedCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WatchedCounters")
    }
}
