//! An engine, and a device that it has taken.

use crate::fd_store::FdStore;
use crate::on_device::OnDevice;
use crate::refusal::Refusal;
use fanpcap_linux::bpf::Table;
use fanpcap_linux::process::pidfd::Process;
use fanpcap_steer::ForEngine;
use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// What takes packets from devices and puts them into members' rings. Devices are those of the
/// calling thread's network namespace, by their index.
pub trait Engine: Debug + Sync {
    /// The name, as the prefix of a device and `driver@DEVICE` have it.
    fn name(&self) -> &'static str;

    /// What the groups' tables call it, another for each engine.
    fn id(&self) -> u8;

    /// Memory for the table of a new group, `len` zeros, which its members map, and what steers its
    /// packets reads.
    ///
    /// # Errors
    /// `EPERM` without the capability that it takes; `EMFILE` and the like.
    fn new_table(&self, len: u32) -> io::Result<Table>;

    /// Whether the device is free for the engine, as far as can be told without trying. Takes no
    /// time and no capability: the caller has locks.
    ///
    /// # Errors
    /// Why it is not.
    fn check(&self, ifindex: u32) -> Result<(), Refusal>;

    /// Takes a device that no process has taken for this engine. The host still gets its packets.
    /// The driver may take its time: the caller has no lock. Of several callers one has the device.
    ///
    /// # Errors
    /// Why the engine can't have it.
    fn take(&self, ifindex: u32) -> Result<Box<dyn TakenDevice>, Refusal>;

    /// Opens a taken device by the [`TakenDevice::descriptors`] of another process. The caller has
    /// the device's lock.
    ///
    /// # Errors
    /// `NotFound` when the engine has lost the device; `InvalidData` when these are others.
    fn open_device(
        &self,
        descriptors: Vec<OwnedFd>,
        ifindex: u32,
    ) -> io::Result<Box<dyn TakenDevice>>;

    /// Opens a group's part of a device by the group's descriptor store and by what another member
    /// has handed over, [`OnDevice::device_descriptors`].
    ///
    /// # Errors
    /// When these are not what they should be.
    fn open_group(&self, store: &FdStore, device: Vec<OwnedFd>) -> io::Result<Box<dyn OnDevice>>;

    /// The counters of a group, for who is no member of it and must know them when its last member
    /// has ended. `process` is that of the member with this socket (`SO_COOKIE`) in this slot,
    /// `pid` its number.
    ///
    /// # Errors
    /// `NotFound` if the member is not there, or not yet; `EPERM` when the caller may not trace its
    /// process.
    fn watch_counters(
        &self,
        process: &Process,
        pid: u32,
        slot: u8,
        socket: u64,
    ) -> io::Result<Box<dyn WatchedCounters>>;
}

/// A device that an engine has taken, for all groups on it.
pub trait TakenDevice: Debug + Send + Sync {
    /// What every member of every group on the device has, to hand it to newcomers of other groups.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Readable while a group on the device has no member any more, and the device still serves it.
    fn lifelines(&self) -> BorrowedFd<'_>;

    /// Begins a group, to which no packets come yet.
    ///
    /// # Errors
    /// Why it can't be had.
    fn begin(&self, group: &NewGroup<'_>) -> Result<Begun, Refusal>;
}

/// What a new group is made of.
#[derive(Debug)]
pub struct NewGroup<'a> {
    /// Its steering program.
    pub steering: &'a ForEngine,
    /// The map with its table.
    pub table: BorrowedFd<'a>,
    /// Its descriptor store, which gets the engine's entries.
    pub store: &'a FdStore,
    /// The index of its device.
    pub ifindex: u32,
}

/// A group that has begun on a device.
#[derive(Debug)]
pub struct Begun {
    /// The group's part of the device.
    pub on_device: Box<dyn OnDevice>,
    /// Its BPF program for received packets, if it is one that steers them.
    pub program: Option<OwnedFd>,
    /// Whether that counts for the steering program.
    pub counts: bool,
}

/// A group's counters, held by a process that is no member: nothing else is kept alive.
pub trait WatchedCounters: Debug + Send + Sync {
    /// Packets for the slot, dropped ones included, and dropped ones, ever since the group began;
    /// `None` where the member with this socket neither has the slot nor had it last.
    fn counted(&self, slot: u8, socket: u64) -> Option<[u64; 2]>;

    /// Packets that came to the group.
    fn offered(&self) -> u64;

    /// Packets for which the group had no member.
    fn no_member(&self) -> u64;
}
