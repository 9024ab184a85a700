//! A group's part of a device that an engine has taken over.

use crate::fd_store::{FdStore, StoredFd};
use crate::ledger::Ledger;
use crate::member_io::{Ask, MemberIo};
use crate::refusal::Refusal;
use fanpcap_ring::Remains;
use fanpcap_steer::ForEngine;
use fanpcap_steer::ir::COUNTERS;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The counters of a steering program.
pub type Counts = [u64; COUNTERS];

/// A group's part of a taken device, in one process. Slots are the group's slots: 0 to 255.
pub trait OnDevice: Send + Sync {
    /// The engine's entries in the group's descriptor store.
    fn entries(&self) -> Vec<StoredFd>;

    /// The descriptors that the members of all groups on the device share. Newcomers get duplicates
    /// of these descriptors.
    fn device_descriptors(&self) -> [BorrowedFd<'_>; 2];

    /// Gives the device's packets to the group from now on, until the group's last member is gone.
    /// If the group `steals`, the host does not get these packets during this time. Returns the
    /// group's number on the device. The caller holds the device's lock, here and for
    /// [`OnDevice::check`] and [`OnDevice::clear`].
    ///
    /// # Errors
    /// Why the device can't serve one more group.
    fn attach(&self, store: &FdStore, steals: bool) -> Result<u8, Refusal>;

    /// Checks that the device's packets still come to the engine. If `steals` has a group's number,
    /// sets whether the host loses the device's packets for this group from now on, until the group
    /// is gone. The host loses them as long as any group on the device steals them.
    ///
    /// # Errors
    /// `NotFound` when another process has detached the engine; the errors of the descriptor
    /// stores. After an error, another call completes the change.
    fn check(&self, steals: Option<(u8, bool)>) -> io::Result<()>;

    /// Frees what the device still has for groups that have lost their last member.
    ///
    /// # Errors
    /// The errors of [`OnDevice::check`]. After an error, another call completes the change.
    fn clear(&self) -> io::Result<()>;

    /// Checks that the group's members can get packets that the host sends.
    ///
    /// # Errors
    /// Why the members can't get these packets.
    fn sees_sent(&self) -> Result<(), Refusal>;

    /// Makes the rings of a member, or uses those that the group's founder has made by this
    /// function and that were in no slot yet. To use the founder's rings needs no capability.
    ///
    /// # Errors
    /// Why the rings can't be made; for a founder's rings, that packets were in them, or that they
    /// are no rings of the group.
    fn open(&self, ask: &Ask, made: Option<Vec<OwnedFd>>) -> Result<Box<dyn MemberIo>, Refusal>;

    /// Removes the rings of a slot. When this function returns, no more packets come into the
    /// rings.
    ///
    /// # Errors
    /// The errors of bpf(2).
    fn dismiss(&self, slot: u8) -> io::Result<()>;

    /// Stops the flow of packets into a slot's rings, but keeps the rings. Packets in flight may
    /// still arrive there.
    fn stop(&self, slot: u8);

    /// An object of the group that the kernel releases slowly. Nobody needs to wait for its
    /// release.
    fn slow_to_close(&self) -> Option<BorrowedFd<'_>>;

    /// Whether the device is gone, or another process has detached the engine from the device.
    fn is_detached(&self) -> bool;

    /// How many packets came for a slot since the group began, dropped ones included, and how many
    /// were dropped.
    fn counted(&self, slot: u8) -> [u64; 2];

    /// What became of the packets that have come to the group so far.
    fn ledger(&self) -> Ledger;

    /// The steering program's counters, and the number of late fragments: those that may have gone
    /// to another member than the other packets of their flow.
    ///
    /// # Errors
    /// The errors of bpf(2).
    fn counters(&self) -> io::Result<(Counts, u64)>;

    /// Whether a member's rings have unread packets.
    ///
    /// # Errors
    /// When the state of the rings can't be read.
    fn has_unread(&self, rings: &[OwnedFd]) -> io::Result<bool>;

    /// The unread packets in a member's rings, from which the member has taken `taken` packets. The
    /// caller has made sure that the engine puts no more packets into the rings.
    ///
    /// # Errors
    /// When `rings` are not rings of the group, or can't be mapped.
    fn remains(&self, rings: Vec<OwnedFd>, taken: u64) -> io::Result<Remains>;

    /// Opens a loader, to load another steering program for the group. The caller has the device's
    /// lock.
    ///
    /// # Errors
    /// As [`OnDevice::check`].
    fn loader(&self) -> io::Result<Box<dyn Loader + '_>>;

    /// Replaces the steering program of the group with this number on the device. `next` are the
    /// descriptors of [`Next::programs`]. Each packet is processed by either the former or the next
    /// steering program, never by both. The call can be repeated. The caller holds the device's
    /// lock.
    ///
    /// # Errors
    /// The errors of bpf(2) and of the descriptor stores. After an error, the former steering
    /// program stays.
    fn replace(&self, number: u8, next: &[OwnedFd]) -> io::Result<()>;
}

/// Loads steering programs for a group.
pub trait Loader {
    /// Loads the steering program whose text is `text`. It processes no packets before
    /// [`OnDevice::replace`]. Loading takes a while, and the caller does not need to hold a lock
    /// meanwhile.
    ///
    /// # Errors
    /// Why the steering program can't be loaded.
    fn load(
        &self,
        steering: &ForEngine,
        text: &str,
        table: BorrowedFd<'_>,
    ) -> Result<Next, Refusal>;
}

/// A steering program that is loaded for a group.
#[derive(Debug)]
pub struct Next {
    /// The descriptors of the objects that the engine has loaded, at least one. On XDP, the first
    /// is the BPF program for received packets, and a second may be the BPF program for packets
    /// that the host sends.
    pub programs: Vec<OwnedFd>,
    /// Whether the steering program has counters, which the engine increments.
    pub counts: bool,
}

// Structs with an `OnDevice` field need this for their `Debug`. A derived `Debug` would bring the
// `Debug` code of all parts into the library (decision 13).
impl fmt::Debug for dyn OnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnDevice")
    }
}

impl fmt::Debug for dyn Loader + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loader")
    }
}
