//! Draws packets with all stacks of headers that the walk (`fanpcap_wire`, the parser of headers)
//! reads, and damaged packets as hostile senders may send them.

mod network;
mod link;
mod transport;
mod tunnel;

use std::fmt;

use fanpcap_steer::native::Packet;
use fanpcap_wire::{Frame, Tag};

use crate::{Draw, pools};

/// A packet: its bytes, and the metadata that it has at the receiver.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// The captured bytes.
    pub bytes: Vec<u8>,
    /// The VLAN tag that the kernel keeps in the skb, not in `bytes`.
    pub tag: Option<Tag>,
    /// The frame's length on the wire, without `tag`.
    pub length: u32,
    /// The hash from the NIC or the kernel; 0 if there is no hash.
    pub hash: u32,
    /// The receiving queue.
    pub queue: Option<u32>,
    /// The CPU that handles the packet.
    pub cpu: u32,
    /// The kernel's mark.
    pub mark: Option<u32>,
    /// The time since the previous packet, in nanoseconds.
    pub gap_ns: u64,
}

/// The version of the IP packet that contains a header.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// Draws the payload of an IP packet. Returns its protocol number and its bytes. Tunnels and ICMP
/// errors contain further packets, which are nested up to `depth` deep.
fn upper(draw: &mut Draw<'_>, family: Family, depth: usize) -> (u8, Vec<u8>) {
    let deep = if depth > 1 { 1 } else { 0 };
    let weights = [60, 36, 26, 12, 8, 6, 6, 20 * deep, 40 * deep, 30 * deep, 8];
    match draw.weighted(&weights) {
        0 => (6, transport::tcp(draw)),
        1 => (17, transport::udp(draw)),
        2 => (17, transport::media(draw)),
        3 => (transport::icmp_of(draw, family), transport::icmp(draw)),
        4 => (132, [&*transport::ports(draw), &*draw.bytes(8)].concat()),
        5 => (
            draw.pick(&[33, 136]),
            [&*transport::ports(draw), &*draw.bytes(12)].concat(),
        ),
        6 => (pools::protocol(draw), draw.bytes(24)),
        7 => (
            transport::icmp_of(draw, family),
            transport::error(draw, family, depth - 1),
        ),
        8 => (17, tunnel::in_udp(draw, depth - 1)),
        9 => tunnel::in_ip(draw, depth - 1),
        _ => (6, draw.bytes(3)),
    }
}

/// Shows the bytes in hexadecimal without spaces, so that they can be given to other tools.
impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex: String = self
            .bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        write!(
            f,
            "{hex} ({} of {} bytes), {:?}, ",
            self.bytes.len(),
            self.length,
            self.tag
        )?;
        write!(
            f,
            "hash {:#x}, queue {:?}, CPU {}, ",
            self.hash, self.queue, self.cpu
        )?;
        write!(
            f,
            "mark {:?}, {} ns after the previous packet",
            self.mark, self.gap_ns
        )
    }
}

impl Made {
    /// The frame that the walk reads.
    pub fn frame(&self) -> Frame<'_> {
        Frame {
            bytes: &self.bytes,
            tag: self.tag,
        }
    }

    /// The packet that the evaluator gets at the time `now_ns`.
    pub fn packet(&self, now_ns: u64) -> Packet<'_> {
        Packet {
            frame: self.frame(),
            length: self.length,
            hash: self.hash,
            queue: self.queue,
            cpu: self.cpu,
            mark: self.mark,
            now_ns,
        }
    }
}

/// Maximum nesting depth of packets.
const DEPTH: usize = 3;

/// Draws a packet. About seven in ten packets are undamaged.
pub fn packet(draw: &mut Draw<'_>) -> Made {
    let whole = frame(draw);
    let length = u32::try_from(whole.len()).unwrap_or(u32::MAX);
    let kept = damaged(draw, whole);
    beside(draw, kept, length)
}

/// Draws a frame with MPLS labels. No type in the frame announces what the labels carry.
pub fn labelled(draw: &mut Draw<'_>) -> Vec<u8> {
    link::labelled(draw, DEPTH)
}

/// Draws a complete frame. Few of its fields are wrong. Some stacks of headers are deeper than the
/// walk reads.
pub fn frame(draw: &mut Draw<'_>) -> Vec<u8> {
    link::ethernet(draw, DEPTH)
}

/// Damages about three in ten packets: cuts bytes off at the end, changes or inserts some bytes, or
/// replaces all bytes by random bytes.
fn damaged(draw: &mut Draw<'_>, mut bytes: Vec<u8>) -> Vec<u8> {
    match draw.weighted(&[70, 14, 10, 2, 2]) {
        0 => {}
        1 => bytes.truncate(draw.below(bytes.len() + 1)),
        2 => {
            for _ in 0..=draw.below(4) {
                let at = draw.below(bytes.len());
                bytes[at] = draw.byte();
            }
        }
        3 => {
            let at = draw.below(bytes.len());
            let more = draw.bytes(8);
            bytes.splice(at..at, more);
        }
        _ => {
            let len = draw.below(64);
            bytes = draw.bytes(len);
        }
    }
    bytes
}

fn beside(draw: &mut Draw<'_>, bytes: Vec<u8>, length: u32) -> Made {
    let tagged = draw.one_in(6);
    Made {
        bytes,
        tag: tagged.then(|| Tag {
            tpid: draw.pick(&[0x8100, 0x88a8]),
            tci: pools::vlan(draw) | draw.pick(&[0, 0xe000]),
        }),
        length,
        hash: draw.pick(&[0, 1, 0x1234_5678, u32::MAX]),
        queue: draw.pick(&[Some(0), Some(1), Some(3), None]),
        cpu: draw.pick(&[0, 1]),
        mark: draw.pick(&[Some(0), Some(1), Some(2), None]),
        gap_ns: draw.pick(&[0, 1000, 1_000_000, 1_500_000_000, 3_000_000_000]),
    }
}
