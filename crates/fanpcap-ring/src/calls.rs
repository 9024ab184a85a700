//! Packets that the library of an engine returns one at a time, by a call for each. The packets
//! stay in the engine's memory.

use crate::frame::{Corrupt, Frame, LINK_LEN, LinkInfo, Stamp};
use crate::layout::Layout;
use std::fmt;
use std::ptr::NonNull;

/// The library of an engine.
pub trait Calls: Send {
    /// Takes the next packet without waiting. `None` if no packet has come. The packet's bytes stay
    /// valid until the next call.
    fn take(&mut self) -> Option<Called<'_>>;
}

/// A packet that a call has returned. It is an Ethernet frame with its tags.
#[derive(Debug)]
pub struct Called<'a> {
    /// The captured bytes.
    pub bytes: &'a mut [u8],
    /// The packet's length on the wire.
    pub wire_len: u32,
    /// The packet's arrival time.
    pub stamp: Stamp,
    /// Whether the host sends the packet.
    pub is_sent: bool,
}

/// The packets of an engine that returns them one at a time.
pub struct CallRing {
    calls: Box<dyn Calls>,
    ifindex: u32,
    /// A packet that was taken from the engine, but not read.
    next: Option<Taken>,
    /// The `sockaddr_ll` of the last frame.
    link: [u8; LINK_LEN],
    taken: u64,
}

/// The parts of a [`Called`].
struct Taken {
    data: NonNull<u8>,
    captured: u32,
    wire_len: u32,
    stamp: Stamp,
    link: LinkInfo,
}

// SAFETY: the pointer is to memory of `calls`, which one thread at a time uses.
unsafe impl Send for CallRing {}

impl CallRing {
    /// The packets of a device.
    pub fn new(calls: Box<dyn Calls>, ifindex: u32) -> Self {
        Self {
            calls,
            ifindex,
            next: None,
            link: [0; LINK_LEN],
            taken: 0,
        }
    }

    /// Whether a packet can be read. If no packet is waiting to be read, this takes one, and the
    /// bytes of the last one are no longer valid.
    pub fn is_ready(&mut self) -> bool {
        if self.next.is_none() {
            let ifindex = self.ifindex;
            self.next = self.calls.take().map(|called| Taken::of(called, ifindex));
        }
        self.next.is_some()
    }

    /// The arrival time of the next packet. See [`CallRing::is_ready`].
    pub fn peek(&mut self) -> Option<Stamp> {
        self.is_ready();
        self.next.as_ref().map(|taken| taken.stamp)
    }
}

impl Taken {
    fn of(called: Called<'_>, ifindex: u32) -> Self {
        let pkttype = if called.is_sent { OUTGOING } else { HOST };
        Self {
            captured: u32::try_from(called.bytes.len()).unwrap_or(u32::MAX),
            data: NonNull::from(called.bytes).cast(),
            wire_len: called.wire_len,
            stamp: called.stamp,
            link: LinkInfo {
                // The frame has it.
                protocol: 0,
                ifindex,
                hatype: ETHERNET,
                pkttype,
            },
        }
    }
}

impl Layout for CallRing {
    #[inline]
    fn taken(&self) -> u64 {
        self.taken
    }

    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Corrupt> {
        let Some(taken) = self.next.take() else {
            return Ok(None);
        };
        self.taken += 1;
        self.link = taken.link.to_bytes();
        // SAFETY: the bytes are valid until the next call of `take`. The frame borrows this value,
        // so there is no such call as long as the frame lives. So does the `sockaddr_ll`.
        Ok(Some(unsafe {
            Frame::of_call(
                taken.data,
                taken.captured,
                taken.wire_len,
                NonNull::from(&mut self.link).cast(),
                taken.stamp,
            )
        }))
    }
}

impl fmt::Debug for CallRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallRing")
    }
}

// linux/if_packet.h, linux/if_arp.h.
const HOST: u8 = 0;
const OUTGOING: u8 = 4;
const ETHERNET: u16 = 1;
