//! A member's own part of an engine.

use fanpcap_bpf::Classic;
use fanpcap_reader::Input;
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What a handle asks of its engine.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Bytes of each packet to keep.
    pub snaplen: u32,
    /// Bytes of all its rings, if the application asks for a size.
    pub bytes: Option<u32>,
    /// Whether packets that the host sends are captured too.
    pub outgoing: bool,
}

/// A member's rings. No packet comes into them before [`MemberIo::admit`].
pub trait MemberIo: Debug + Send + Sync {
    /// Directs the packets of a slot into the rings from now on, unfiltered, but not what the
    /// member sends by its own `socket` (`SO_COOKIE`). The first packet wakes the reader. When this
    /// returns, nothing comes into the rings that the slot had before.
    ///
    /// # Errors
    /// Those of bpf(2). The slot may then take nothing.
    fn admit(&self, slot: u8, socket: u64) -> io::Result<()>;

    /// What a reader reads. `socket` is the handle's packet socket, which receives nothing and
    /// stays open as long as the reader lives. `timeout` is the longest time until a packet is
    /// handed over.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM` and the like.
    fn input(
        &self,
        slot: u8,
        socket: BorrowedFd<'static>,
        timeout: Option<Duration>,
    ) -> io::Result<Input>;

    /// Runs a filter for the slot, under this number, which is not 0 and another for each filter.
    /// Returns whether the engine runs it: else the reader must.
    fn filter(&self, slot: u8, code: &[Classic], number: u32) -> bool;

    /// The descriptors of the rings, for [`crate::OnDevice::remains`] in another process.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Bytes of all rings.
    fn bytes(&self) -> usize;
}
