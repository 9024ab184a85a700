//! The rings of a member, which its engine fills.

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
    /// Bytes of all the handle's rings together; `None` if the application sets no size.
    pub bytes: Option<u32>,
    /// Whether packets that the host sends are captured too.
    pub outgoing: bool,
}

/// A member's rings. No packet comes into the rings before [`MemberIo::admit`].
pub trait MemberIo: Send + Sync {
    /// Directs a slot's packets into the rings from now on, unfiltered. Packets that the member
    /// sends by its own `socket` (`SO_COOKIE`) are left out. The first packet wakes the reader.
    /// When this function returns, no more packets come into the slot's former rings.
    ///
    /// # Errors
    /// The errors of bpf(2). After an error, the slot may get no packets.
    fn admit(&self, slot: u8, socket: u64) -> io::Result<()>;

    /// Returns the reader's input. `socket` is the handle's packet socket, which receives nothing
    /// and stays open as long as the reader lives. `timeout` is the longest time until a packet is
    /// delivered.
    ///
    /// # Errors
    /// `EMFILE`, `ENOMEM` and the like.
    fn input(
        &self,
        slot: u8,
        socket: BorrowedFd<'static>,
        timeout: Option<Duration>,
    ) -> io::Result<Input>;

    /// Sets the slot's filter. Its `number` is not 0 and differs from the numbers of all other
    /// filters. Returns whether the engine runs the filter. If false, the reader must run it.
    /// Packets that have passed the filter in the engine get this number.
    fn filter(&self, slot: u8, code: &[Classic], number: u32) -> bool;

    /// The descriptors of the rings, for [`crate::OnDevice::remains`] in another process.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Bytes of all rings.
    fn bytes(&self) -> usize;

    /// Whether the rings also get packets that the host sends.
    fn captures_sent(&self) -> bool;
}

// Structs with a `MemberIo` field need this for their `Debug`. A derived `Debug` would bring the
// `Debug` code of all parts into the library (decision 13).
impl fmt::Debug for dyn MemberIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemberIo")
    }
}
