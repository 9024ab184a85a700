//! An engine whose packets others take from the device and share: another process, the poller, or
//! a kernel module of others with its own library.

use crate::member_io::Ask;
use crate::refusal::Refusal;
use fanpcap_linux::file::shared::Word;
use fanpcap_reader::{GroupTasks, Input};
use fanpcap_steer::GroupOptions;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// An engine whose packets a poller takes from the device. The poller writes each member's packets
/// into the member's pool. Members share nothing with each other, and take no device.
///
/// The same holds for an engine whose own kernel module shares the packets of a group. Its members
/// have memory of the module's in the place of a pool, and no poller.
pub trait Polled: Sync {
    /// The engine's name, as in the setting `driver@DEVICE` and in the prefix of a device's name.
    fn name(&self) -> &'static str;

    /// Returns the bytes of the pool that a poller makes for a member that asks for `asked` bytes,
    /// or for the usual size. `None` if the memory has no size in bytes.
    fn pool_bytes(&self, asked: Option<u32>) -> Option<u64>;

    /// Whether handles on a device of this name get their packets from a poller in another network
    /// namespace. The calling thread's network namespace may have a device of this name, too.
    fn is_elsewhere(&self, device: &str) -> bool;

    /// The devices that pollers serve, and on which this process may become a member, in order.
    /// Asks no poller for anything, but connects to each.
    fn devices(&self) -> Vec<String>;

    /// Enters a group of the poller that serves the device in the calling thread's network
    /// namespace. Waits for [`EnterRequest::limit`] at most. The application's first look for
    /// packets gives the member its share of the group's packets. If the poller has not answered in
    /// time, keeps the connection in `asked`. A later call for the same handle then waits for this
    /// answer, and does not ask again.
    ///
    /// # Errors
    /// [`NO_POLLER`] if no poller serves the device, and other reasons why the handle is no member.
    fn enter(
        &self,
        request: &EnterRequest<'_>,
        asked: &mut Option<OwnedFd>,
    ) -> Result<Arc<dyn PolledIo>, Refusal>;
}

/// The [`Refusal::slug`] if no poller serves the device. A later attempt may find one.
pub const NO_POLLER: &str = "poller-absent";

/// The [`Refusal::slug`] if the poller has not answered in time. A later attempt may get an answer.
pub const SILENT_POLLER: &str = "poller-silent";

/// The group that a handle enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnterGroup {
    /// A group of the handle's own, without a number.
    Own,
    /// A new group, for which the poller chooses a number that no group of the user has.
    New,
    /// The group with this number.
    Number(u16),
}

/// A handle's request to a poller.
#[derive(Debug)]
pub struct EnterRequest<'a> {
    /// The device's name.
    pub device: &'a str,
    /// The handle's group.
    pub group: EnterGroup,
    /// The steering program's text and the group's options; `None` for those that the group has.
    pub steering: Option<(&'a str, GroupOptions)>,
    /// The steering program that the group had at the handle's former poller
    /// ([`PolledIo::steering`]). If `steering` is `None` and the group is new, it begins with this
    /// program.
    pub former: Option<(&'a str, GroupOptions)>,
    /// The member's name, if it has one.
    pub name: Option<&'a str>,
    /// The member's weight.
    pub weight: u16,
    /// The member's class, 0 to 63.
    pub class: u8,
    /// The handle's requirements.
    pub ask: Ask,
    /// How long to wait until the poller answers. The poller may be stopped.
    pub limit: Duration,
    /// The application's handle, if it is on several devices.
    pub whole: Option<Whole>,
}

/// A handle on several devices, of which one asks to enter a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// A number that no other handle of the process has.
    pub number: u32,
    /// The poller that has to serve this device, too ([`PolledIo::poller`]), because another device
    /// of the handle has the same group; 0: any.
    pub poller: u64,
}

/// A member of a poller's group. The membership ends with this value, with the inputs and with the
/// tasks that were made from it. A forked child may have a copy, and then the membership ends when
/// all copies have ended: a copy that is closed tells the poller nothing.
pub trait PolledIo: Send + Sync {
    /// The reader's input. `timeout` is the longest time until a packet is delivered.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM` and the like.
    fn input(&self, timeout: Option<Duration>) -> io::Result<Input>;

    /// The member's tasks for its group, which its reader runs.
    fn tasks(&self) -> Arc<dyn GroupTasks>;

    /// Gives the member its share of the group's packets, as the application is about to wait for
    /// packets. Does nothing if the member has its share.
    fn note_asked(&self);

    /// The number of the member's group, if it has one.
    fn group(&self) -> Option<u16>;

    /// The steering program's text and the options of the member's group, if the group has a number
    /// and the request did not say them.
    fn steering(&self) -> Option<(&str, GroupOptions)>;

    /// The poller's number, which is the same for all devices that one process serves.
    fn poller(&self) -> u64;

    /// Sends a frame by the poller, without waiting. What becomes of the frame at the device is not
    /// reported.
    ///
    /// # Errors
    /// `Unsupported` if the poller sends no frames of members; `WouldBlock` if it has taken
    /// too few of the former frames; `EMSGSIZE`; `EPIPE` if it has ended.
    fn send(&self, frame: &[u8]) -> io::Result<()>;

    /// Bytes of the pool; `None` if the memory has no size in bytes.
    fn bytes(&self) -> Option<u64>;

    /// The words in which the member tells the watchers of its poller how many packets it has
    /// taken, how many of them its filter has rejected, and when its application last looked for
    /// packets.
    ///
    /// # Errors
    /// The errors of mmap(2).
    fn figures(&self) -> io::Result<[Word; 3]>;

    /// How many packets came for the member, dropped ones included, and how many were dropped.
    /// Allocates nothing.
    fn counted(&self) -> [u64; 2];

    /// How many packets the poller's source has dropped since the handle is a member, because the
    /// poller was late. The group had no chance to steer them, so the number is the same for all
    /// members. It is at most 100 ms old. Allocates nothing.
    fn missed(&self) -> u64;
}

// Structs with a `PolledIo` field need this for their `Debug`. A derived `Debug` would bring the
// `Debug` code of all parts into the library (decision 13).
impl fmt::Debug for dyn PolledIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolledIo")
    }
}

impl fmt::Debug for dyn Polled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Polled")
    }
}
