//! One read: what is asked of it, what it gives, how it ends.

use crate::port::ReadError;
use std::ffi::c_int;
use std::time::Duration;

/// A packet as the application gets it. It begins as a `struct pcap_pkthdr` of 64-bit machines, and
/// is written where the application finds it: to put it together from results costs more than all
/// else.
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
    /// The packet's bytes, in the ring: valid until the next packet is asked for.
    pub data: *const u8,
}

impl Packet {
    /// None yet.
    pub const NONE: Self = Self {
        seconds: 0,
        fraction: 0,
        caplen: 0,
        len: 0,
        data: std::ptr::null(),
    };
}

/// How a read ends.
#[derive(Debug)]
pub enum End {
    /// With so many packets delivered.
    Delivered(c_int),
    /// The application broke the loop.
    Broken,
    /// No more packets can be read.
    Failed(Box<ReadError>),
}

impl From<ReadError> for End {
    #[cold]
    fn from(error: ReadError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// Why there is no packet at once.
#[derive(Debug)]
pub(crate) enum Pause {
    /// The read ends.
    End(End),
    /// There is none; the read goes on after this wait.
    Wait(Wait),
}

impl From<End> for Pause {
    fn from(end: End) -> Self {
        Self::End(end)
    }
}

/// What to wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// Leave a busy ring alone for so long.
    Rest(Duration),
    /// Packets of the one device; after the time given, counters are to be published.
    Packets(Option<Duration>),
    /// Packets of those devices whose bit is set, but no longer than this.
    Any(u64, Option<Duration>),
}

/// One read: pcap_dispatch() and its like.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    max: c_int,
    pub(crate) delivered: c_int,
    /// The read has had something to read, or has waited for it: it need not wait again.
    pub(crate) begun: bool,
}

impl Call {
    /// A read that delivers at most `max` packets; 0 and less mean as many as there are.
    pub fn new(max: c_int) -> Self {
        Self {
            max: if max <= 0 { c_int::MAX } else { max },
            delivered: 0,
            begun: false,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.delivered >= self.max
    }
}
