//! Packet diag: lists every packet socket of a network namespace, with its device, protocol and
//! fanout group (linux/packet_diag.h, linux/sock_diag.h).

use crate::bytes::{u16_at, u32_at};
use crate::netlink::{self, Question, for_each_attribute};
use crate::process::lock::Lock;
use std::io;
use std::os::fd::OwnedFd;

/// One packet socket of the calling thread's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSocket {
    /// Inode of the socket, as in `/proc/PID/fd`.
    pub inode: u32,
    /// Interface index; 0 means all interfaces.
    pub ifindex: u32,
    /// Protocol in host byte order, `ETH_P_*`.
    pub protocol: u16,
    /// The socket's fanout group; `None` if the socket is in no group.
    pub fanout: Option<FanoutGroup>,
    /// Whether the kernel passes packets to the socket: the socket is bound, and its device is up.
    pub is_running: bool,
    /// Layout of the socket's rings, `TPACKET_V*` (0 to 2).
    pub version: u32,
    /// The geometry of the socket's receive ring; `None` if the socket has no ring.
    pub ring: Option<Geometry>,
    /// The effective user that the process had when it opened the socket.
    pub user: u32,
}

impl PacketSocket {
    /// Whether the socket's device was removed (af_packet.c, `packet_notifier`).
    pub fn has_lost_device(&self) -> bool {
        self.ifindex == u32::MAX
    }
}

/// The geometry of a receive ring, as `PACKET_RX_RING` set it (packet(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block.
    pub block_size: u32,
    /// Number of blocks.
    pub block_count: u32,
    /// Bytes of a frame. `TPACKET_V3` uses as many bytes as a packet needs.
    pub frame_size: u32,
    /// Number of frames.
    pub frame_count: u32,
    /// Milliseconds after which `TPACKET_V3` hands over a block that is not full.
    pub retire: u32,
}

/// A fanout group as packet diag reports it, without flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FanoutGroup {
    /// Group number.
    pub id: u16,
    /// `PACKET_FANOUT_*` mode number.
    pub mode: u8,
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const PACKET_SHOW_INFO: u32 = 0x01;
const PACKET_SHOW_RING_CFG: u32 = 0x04;
const PACKET_SHOW_FANOUT: u32 = 0x08;
const PACKET_DIAG_INFO: u16 = 0;
const PACKET_DIAG_RX_RING: u16 = 2;
const PACKET_DIAG_FANOUT: u16 = 4;
const PACKET_DIAG_UID: u16 = 5;
const MESSAGE_LEN: usize = 16;
/// Offset of `pdi_flags` in packet_diag_info.
const INFO_FLAGS: usize = 20;
const PDI_RUNNING: u32 = 1;

/// Lists the packet sockets of the calling thread's network namespace.
///
/// # Errors
/// `ENOENT` if the kernel lacks packet diag (`CONFIG_PACKET_DIAG`), or the error of a socket call.
pub fn packet_sockets() -> io::Result<Vec<PacketSocket>> {
    list(&netlink::open(QUESTION.protocol)?)
}

/// A netlink socket for packet diag. It reports the packet sockets of the network namespace in
/// which it was opened, even if the calling thread has changed to another namespace.
#[derive(Debug)]
pub struct Diag {
    netlink: Lock<OwnedFd>,
    /// The process that opened the socket. A forked child must not use the socket, because it could
    /// read answers to its parent's requests.
    pid: u32,
}

impl Diag {
    /// Opens packet diag of the calling thread's network namespace.
    ///
    /// # Errors
    /// The error of socket(2).
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            netlink: Lock::new(netlink::open(QUESTION.protocol)?),
            pid: std::process::id(),
        })
    }

    /// Whether this process has opened the socket. False in a child that was forked after the
    /// opening.
    pub fn is_own(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Returns the packet sockets of the network namespace in which `self` was opened. In a forked
    /// child, returns the packet sockets of the calling thread's namespace.
    ///
    /// # Errors
    /// As [`packet_sockets`].
    pub fn packet_sockets(&self) -> io::Result<Vec<PacketSocket>> {
        match self.is_own() {
            true => self.netlink.with(|netlink| list(netlink)),
            false => packet_sockets(),
        }
    }
}

const QUESTION: Question = Question {
    protocol: libc::NETLINK_SOCK_DIAG,
    asks: SOCK_DIAG_BY_FAMILY,
    answers: SOCK_DIAG_BY_FAMILY,
};

fn list(netlink: &OwnedFd) -> io::Result<Vec<PacketSocket>> {
    let mut sockets = Vec::new();
    QUESTION.list_by(netlink, &request(), &mut |payload| {
        sockets.push(socket(payload)?);
        Some(())
    })?;
    Ok(sockets)
}

/// Builds packet_diag_req.
fn request() -> Vec<u8> {
    let mut bytes = vec![17, 0, 0, 0]; // AF_PACKET, any protocol
    bytes.extend(0_u32.to_ne_bytes()); // any inode
    let show = PACKET_SHOW_INFO | PACKET_SHOW_RING_CFG | PACKET_SHOW_FANOUT;
    bytes.extend(show.to_ne_bytes());
    bytes.extend([0; 8]); // no cookie
    bytes
}

/// Parses packet_diag_msg (family, type, protocol, inode, cookie) and the attributes after it.
fn socket(payload: &[u8]) -> Option<PacketSocket> {
    let mut socket = PacketSocket {
        protocol: u16_at(payload, 2)?,
        inode: u32_at(payload, 4)?,
        ifindex: 0,
        fanout: None,
        is_running: false,
        version: 0,
        ring: None,
        user: 0,
    };
    let mut whole = true;
    for_each_attribute(payload.get(MESSAGE_LEN..)?, |kind, value| {
        whole &= attribute(&mut socket, kind, value).is_some();
    });
    whole.then_some(socket)
}

fn attribute(socket: &mut PacketSocket, kind: u16, value: &[u8]) -> Option<()> {
    match kind {
        PACKET_DIAG_INFO => {
            socket.ifindex = u32_at(value, 0)?;
            socket.version = u32_at(value, 4)?;
            // Older kernels do not report the flags. On such a kernel, every socket counts as
            // running.
            let flags = u32_at(value, INFO_FLAGS).unwrap_or(PDI_RUNNING);
            socket.is_running = flags & PDI_RUNNING != 0;
        }
        PACKET_DIAG_RX_RING => socket.ring = Some(ring(value)?),
        PACKET_DIAG_UID => socket.user = u32_at(value, 0)?,
        PACKET_DIAG_FANOUT => socket.fanout = Some(group(u32_at(value, 0)?)),
        _ => {}
    }
    Some(())
}

/// Parses packet_diag_ring: block size and number, frame size and number, and more.
fn ring(value: &[u8]) -> Option<Geometry> {
    Some(Geometry {
        block_size: u32_at(value, 0)?,
        block_count: u32_at(value, 4)?,
        frame_size: u32_at(value, 8)?,
        frame_count: u32_at(value, 12)?,
        retire: u32_at(value, 16)?,
    })
}

fn group(word: u32) -> FanoutGroup {
    let [low, high, mode, _] = word.to_le_bytes();
    FanoutGroup {
        id: u16::from_le_bytes([low, high]),
        mode,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_sockets_are_none_or_lack_what_was_cut() {
        let mut whole = vec![0; MESSAGE_LEN];
        whole.extend([12, 0, 0, 0, 1, 2, 3, 4, 2, 0, 0, 0]);
        whole.extend([8, 0, 4, 0, 7, 0, 1, 0]);
        assert!(socket(&whole).is_some_and(|socket| socket.fanout.is_some()));
        for len in 0..whole.len() {
            let cut = socket(&whole[..len]);
            assert!(cut.is_none_or(|socket| socket.fanout.is_none()));
        }
    }

    #[test]
    fn the_kernel_answers_or_says_why_not() {
        match packet_sockets() {
            Ok(_) => {}
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }
}
