//! A member's part of its engine: its rings.

use fanpcap_bpf::Classic;
use fanpcap_reader::Input;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A handle's requirements for its engine.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Bytes of each packet to keep.
    pub snaplen: u32,
    /// Bytes of all the handle's rings, if the application asks for a size.
    pub bytes: Option<u32>,
    /// Whether packets that the host sends are captured too.
    pub outgoing: bool,
}

/// A member's rings. No packet comes into them before [`MemberIo::admit`].
pub trait MemberIo: Send + Sync {
    /// Directs a slot's packets into the rings from now on, unfiltered. Packets that the member
    /// sends by its own `socket` (`SO_COOKIE`) do not come. The first packet wakes the reader. When
    /// this returns, no more packets come into the slot's former rings.
    ///
    /// # Errors
    /// The errors of bpf(2). The slot may then get no packets.
    fn admit(&self, slot: u8, socket: u64) -> io::Result<()>;

    /// The reader's input. `socket` is the handle's packet socket, which receives nothing and stays
    /// open as long as the reader lives. `timeout` is the longest time until a packet is delivered.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM` and the like.
    fn input(
        &self,
        slot: u8,
        socket: BorrowedFd<'static>,
        timeout: Option<Duration>,
    ) -> io::Result<Input>;

    /// Sets the slot's filter. Its `number` is not 0 and differs from those of all other filters.
    /// Returns whether the engine runs the filter; if not, the reader must.
    fn filter(&self, slot: u8, code: &[Classic], number: u32) -> bool;

    /// The descriptors of the rings, for [`crate::OnDevice::remains`] in another process.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Bytes of all rings.
    fn bytes(&self) -> usize;
}

// For structs with a `MemberIo`: a derived `Debug` of all parts would be in the library (decision
// 13).
impl fmt::Debug for dyn MemberIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemberIo")
    }
}
