//! One read: what is asked of it, what it gives, how it ends.

use crate::accept::Direction;
use crate::wait::ReadError;
use fanpcap_ring::{Stamp, Start};
use std::ffi::c_int;

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

/// A packet as the program gets it.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// When it arrived.
    pub stamp: Stamp,
    /// Micro- or nanoseconds of the stamp's second, as the program wants them.
    pub fraction: u32,
    /// Bytes captured.
    pub caplen: u32,
    /// Bytes on the wire.
    pub len: u32,
    /// The packet, in the ring: there until the next packet is asked for.
    pub start: Start,
}

/// How a read ends.
#[derive(Debug)]
pub enum End {
    /// With so many packets delivered.
    Delivered(c_int),
    /// The program broke the loop.
    Broken,
    /// It can't go on.
    Failed(ReadError),
}

impl From<ReadError> for End {
    fn from(error: ReadError) -> Self {
        Self::Failed(error)
    }
}

/// One read: pcap_dispatch() and its like.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    max: c_int,
    pub(crate) delivered: c_int,
    /// It has had something to read, or has waited for it.
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
