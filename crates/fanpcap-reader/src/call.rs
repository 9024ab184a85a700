//! One read: what is asked of it, what it gives, how it ends.

use crate::accept::Direction;
use crate::wait::ReadError;
use std::ffi::c_int;
use std::time::Duration;

/// What the handle was told before it was activated.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of a packet that the program gets at most.
    pub snaplen: u32,
    /// Stamps in nanoseconds, else in microseconds.
    pub nanoseconds: bool,
    /// A read does not wait.
    pub nonblocking: bool,
    /// Which packets are wanted.
    pub direction: Direction,
    /// Where a VLAN tag goes back in, in bytes from the packet's begin.
    pub tag_at: Option<u8>,
}

/// A packet as the program gets it. It begins as a `struct pcap_pkthdr` of 64-bit machines, and is written
/// where the program finds it: to put it together from results costs more than all else.
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
    /// The packet, in the ring: there until the next packet is asked for.
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
    /// The program broke the loop.
    Broken,
    /// It can't go on.
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
    /// There is none; the read goes on after this.
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
    /// It has had something to read, or has waited for it: it need not wait again.
    pub(crate) begun: bool,
}

impl Call {
    /// One that delivers at most `max` packets; 0 and less mean as many as there are.
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
