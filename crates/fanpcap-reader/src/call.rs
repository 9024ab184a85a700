//! The types of one read: the request, the packet, and the reason why the read ends.

use crate::port::ReadError;
use std::ffi::c_int;
use std::time::Duration;

/// A packet as the application gets it. Begins with the fields of a `struct pcap_pkthdr` of 64-bit
/// machines. The reader fills the packet in place, because building it from returned values costs
/// more than the rest of the read.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Micro- or nanoseconds of the second.
    pub fraction: i64,
    /// Bytes at `data`.
    pub caplen: u32,
    /// Bytes on the wire.
    pub len: u32,
    /// The packet's bytes. Until the application asks for the next packet, the bytes are valid and
    /// the application may write to them.
    pub data: *const u8,
}

impl Packet {
    /// No packet yet.
    pub const NONE: Self = Self {
        seconds: 0,
        fraction: 0,
        caplen: 0,
        len: 0,
        data: std::ptr::null(),
    };
}

/// The reason why a read ends.
#[derive(Debug)]
pub enum End {
    /// The read has delivered this many packets.
    Delivered(c_int),
    /// The application broke the loop (pcap_breakloop(3PCAP)).
    Broken,
    /// No more packets can be read.
    Failed(Box<ReadError>),
}

impl From<ReadError> for End {
    #[cold]
    #[inline(never)]
    fn from(error: ReadError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// The reason why the reader has no packet at once.
#[derive(Debug)]
pub(crate) enum Pause {
    /// The read ends.
    End(End),
    /// The read continues after this wait.
    Wait(Wait),
    /// Only the lane of one device is left in the merge: the read continues without merging.
    Alone,
}

impl From<End> for Pause {
    fn from(end: End) -> Self {
        Self::End(end)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// Rest for this time while a busy ring fills.
    Rest(Duration),
    /// Wait for packets of the only device. After the given time, counters must be published.
    Packets(Option<Duration>),
    /// Wait until a device whose bit is set in the first number has got as many packets as the last
    /// number says. The second value limits the wait.
    Any(u64, Option<Duration>, u64),
}

/// One read by pcap_dispatch(3PCAP) or a similar function.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    max: c_int,
    pub(crate) delivered: c_int,
    /// Whether the read has found packets, or has waited for packets. Such a read need not wait
    /// again.
    pub(crate) begun: bool,
    /// Whether the application's descriptor was readable when the read began; `None`: not checked.
    pub(crate) woken: Option<bool>,
}

impl Call {
    /// A read that delivers at most `max` packets. 0 or a negative number means all available
    /// packets.
    pub fn new(max: c_int) -> Self {
        Self {
            max: if max <= 0 { c_int::MAX } else { max },
            ..Self::default()
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.delivered >= self.max
    }
}
