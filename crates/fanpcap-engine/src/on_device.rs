//! A group's part of a device that an engine has taken.

use crate::fd_store::{FdStore, StoredFd};
use crate::ledger::Ledger;
use crate::member_io::{Ask, MemberIo};
use crate::refusal::Refusal;
use fanpcap_ring::Remains;
use fanpcap_steer::ForEngine;
use fanpcap_steer::ir::COUNTERS;
use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The counters of a steering program.
pub type Counts = [u64; COUNTERS];

/// A group's part of a taken device, in one process. Slots are the group's: 0 to 255.
pub trait OnDevice: Debug + Send + Sync {
    /// The engine's entries in the group's descriptor store.
    fn entries(&self) -> Vec<StoredFd>;

    /// What the members of all groups on the device share, to hand it to newcomers.
    fn device_descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Gives the device's packets to the group from now on, until its last member is gone. Returns
    /// the number of the group on the device. The caller has the device's lock, also for the next
    /// three.
    ///
    /// # Errors
    /// Why the device can't serve one more group.
    fn attach(&self, store: &FdStore, ifindex: u32) -> Result<u8, Refusal>;

    /// Makes the host lose the device's packets until the group with this number is gone.
    ///
    /// # Errors
    /// Those of the descriptor stores.
    fn steal(&self, number: u8, ifindex: u32) -> io::Result<()>;

    /// Checks that the device's packets still come to the engine.
    ///
    /// # Errors
    /// `NotFound` when somebody has detached the engine.
    fn check(&self, ifindex: u32) -> io::Result<()>;

    /// Ends what the device still does for groups that have no member any more.
    ///
    /// # Errors
    /// As [`OnDevice::check`]. Another call completes it.
    fn clear(&self, ifindex: u32) -> io::Result<()>;

    /// Checks that the group's members can get packets that the host sends.
    ///
    /// # Errors
    /// Why they can't.
    fn sees_sent(&self) -> Result<(), Refusal>;

    /// Makes the rings of a member.
    ///
    /// # Errors
    /// Why they can't be had.
    fn open(&self, ask: &Ask) -> Result<Box<dyn MemberIo>, Refusal>;

    /// Takes the rings of a slot away. When this returns, nothing comes into them any more.
    ///
    /// # Errors
    /// Those of bpf(2).
    fn dismiss(&self, slot: u8) -> io::Result<()>;

    /// Puts nothing more into the rings of a slot, which stay there; what is under way may still
    /// come.
    fn stop(&self, slot: u8);

    /// Whether the device is gone, or somebody has detached the engine from it.
    fn is_detached(&self) -> bool;

    /// Packets for a slot, dropped ones included, and dropped ones, ever since the group began.
    fn counted(&self, slot: u8) -> [u64; 2];

    /// What has become of the packets that came to the group, up to now.
    fn ledger(&self) -> Ledger;

    /// The steering program's counters, and the fragments that may have left their flow.
    ///
    /// # Errors
    /// Those of bpf(2).
    fn counters(&self) -> io::Result<(Counts, u64)>;

    /// What a member has left unread in its rings, of which it had `taken` so many packets. The
    /// engine puts nothing into them any more.
    ///
    /// # Errors
    /// When these are not rings of the group, or can't be mapped.
    fn remains(&self, rings: Vec<OwnedFd>, ifindex: u32, taken: u64) -> io::Result<Remains>;

    /// Opens what loads another steering program for the group. The caller has the device's lock.
    ///
    /// # Errors
    /// As [`OnDevice::check`].
    fn loader(&self, ifindex: u32) -> io::Result<Box<dyn Loader + '_>>;

    /// Makes the group, which has this number on the device, go on with what is behind the
    /// descriptors of [`Next`]. Each packet meets the former or the next steering program. It can
    /// be done again from its beginning. The caller has the device's lock.
    ///
    /// # Errors
    /// Those of bpf(2) and of the descriptor stores. The group has its former program then.
    fn replace(&self, number: u8, next: &[OwnedFd], ifindex: u32) -> io::Result<()>;
}

/// Loads steering programs for a group.
pub trait Loader: Debug {
    /// Loads one. No packet meets it before [`OnDevice::replace`]. That takes its time: the caller
    /// needs no lock.
    ///
    /// # Errors
    /// Why the steering program can't be loaded.
    fn load(&self, steering: &ForEngine, table: BorrowedFd<'_>) -> Result<Next, Refusal>;
}

/// A steering program that is loaded for a group.
#[derive(Debug)]
pub struct Next {
    /// Its BPF programs: that for received packets, and maybe one for those that the host sends.
    pub programs: Vec<OwnedFd>,
    /// Whether it counts for the steering program.
    pub counts: bool,
}
