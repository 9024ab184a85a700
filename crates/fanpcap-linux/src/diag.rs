//! Packet diag: every packet socket of the network namespace, with device, protocol and fan-out group
//! (linux/packet_diag.h, linux/sock_diag.h).

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// One packet socket of the calling thread's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketSocket {
    /// Inode of the socket, as in `/proc/PID/fd`.
    pub inode: u32,
    /// Interface index; 0 means all interfaces.
    pub ifindex: u32,
    /// Protocol in host byte order, `ETH_P_*`.
    pub protocol: u16,
    /// The fan-out group that it is in.
    pub fanout: Option<Group>,
    /// Layout of its rings, `TPACKET_V*` (0 to 2).
    pub version: u32,
    /// Its receive ring.
    pub ring: Option<Geometry>,
}

/// A receive ring, as `PACKET_RX_RING` made it (packet(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block.
    pub block_size: u32,
    /// Number of blocks.
    pub block_count: u32,
    /// Bytes of a frame; `TPACKET_V3` takes as many as a packet needs.
    pub frame_size: u32,
    /// Number of frames.
    pub frame_count: u32,
    /// Milliseconds after which `TPACKET_V3` hands over a block that is not full.
    pub retire: u32,
}

/// What diag tells of a fan-out group; flags are not among it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
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
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_LEN: usize = 16;
const MESSAGE_LEN: usize = 16;
const ANSWER_LEN: usize = 32 * 1024;

/// Lists the packet sockets of the calling thread's network namespace.
///
/// # Errors
/// `ENOENT` where the kernel lacks packet diag (`CONFIG_PACKET_DIAG`), or what the socket calls said.
pub fn packet_sockets() -> io::Result<Vec<PacketSocket>> {
    let netlink = open()?;
    send(&netlink, &request())?;
    let mut sockets = Vec::new();
    let mut answer = vec![0; ANSWER_LEN];
    loop {
        let len = receive(&netlink, &mut answer)?;
        if parse(&answer[..len], &mut sockets)? {
            return Ok(sockets);
        }
    }
}

/// nlmsghdr (length, type, NLM_F_REQUEST | NLM_F_DUMP, sequence, port), then packet_diag_req.
fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(36);
    bytes.extend(36_u32.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend((0x0001_u16 | 0x0300).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([17, 0, 0, 0]); // AF_PACKET, any protocol
    bytes.extend(0_u32.to_ne_bytes()); // any inode
    let show = PACKET_SHOW_INFO | PACKET_SHOW_RING_CFG | PACKET_SHOW_FANOUT;
    bytes.extend(show.to_ne_bytes());
    bytes.extend([0; 8]); // no cookie
    bytes
}

/// Reads one datagram of the dump into `sockets`; true when the dump is complete.
fn parse(mut bytes: &[u8], sockets: &mut Vec<PacketSocket>) -> io::Result<bool> {
    while let Some(len) = u32_at(bytes, 0).map(|len| len as usize) {
        let message = bytes
            .get(..len)
            .filter(|_| len >= HEADER_LEN)
            .ok_or_else(malformed)?;
        let payload = &message[HEADER_LEN..];
        match u16_at(message, 4) {
            // The end carries an error code too; 0 is none.
            Some(NLMSG_DONE) if u32_at(payload, 0).unwrap_or(0) == 0 => return Ok(true),
            Some(NLMSG_DONE | NLMSG_ERROR) => return Err(error_of(payload)),
            Some(SOCK_DIAG_BY_FAMILY) => sockets.push(socket(payload).ok_or_else(malformed)?),
            _ => {}
        }
        bytes = bytes.get(align(len)..).unwrap_or_default();
    }
    Ok(false)
}

/// packet_diag_msg (family, type, protocol, inode, cookie), then attributes.
fn socket(payload: &[u8]) -> Option<PacketSocket> {
    let mut socket = PacketSocket {
        protocol: u16_at(payload, 2)?,
        inode: u32_at(payload, 4)?,
        ifindex: 0,
        fanout: None,
        version: 0,
        ring: None,
    };
    let mut rest = payload.get(MESSAGE_LEN..)?;
    while let Some(len) = u16_at(rest, 0).map(usize::from) {
        let attribute = rest.get(..len).filter(|_| len >= 4)?;
        match u16_at(attribute, 2)? {
            PACKET_DIAG_INFO => {
                socket.ifindex = u32_at(attribute, 4)?;
                socket.version = u32_at(attribute, 8)?;
            }
            PACKET_DIAG_RX_RING => socket.ring = Some(ring(attribute)?),
            PACKET_DIAG_FANOUT => socket.fanout = Some(group(u32_at(attribute, 4)?)),
            _ => {}
        }
        rest = rest.get(align(len)..).unwrap_or_default();
    }
    Some(socket)
}

/// packet_diag_ring: block size and number, frame size and number, and more.
fn ring(attribute: &[u8]) -> Option<Geometry> {
    Some(Geometry {
        block_size: u32_at(attribute, 4)?,
        block_count: u32_at(attribute, 8)?,
        frame_size: u32_at(attribute, 12)?,
        frame_count: u32_at(attribute, 16)?,
        retire: u32_at(attribute, 20)?,
    })
}

fn group(word: u32) -> Group {
    let [low, high, mode, _] = word.to_le_bytes();
    Group {
        id: u16::from_le_bytes([low, high]),
        mode,
    }
}

fn error_of(payload: &[u8]) -> io::Error {
    u32_at(payload, 0).map_or_else(malformed, |code| {
        let code = i32::from_ne_bytes(code.to_ne_bytes());
        io::Error::from_raw_os_error(code.wrapping_neg())
    })
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed packet diag answer")
}

fn align(len: usize) -> usize {
    len.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes plain numbers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` is a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn send(netlink: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let source: *const c_void = bytes.as_ptr().cast();
    // SAFETY: `source` points to `bytes.len()` readable bytes. An unconnected netlink socket sends to
    // the kernel.
    let sent = unsafe { libc::send(netlink.as_raw_fd(), source, bytes.len(), 0) };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn receive(netlink: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        let target: *mut c_void = buffer.as_mut_ptr().cast();
        // SAFETY: `target` points to `buffer.len()` writable bytes.
        let received = unsafe { libc::recv(netlink.as_raw_fd(), target, buffer.len(), 0) };
        match usize::try_from(received).map_err(|_| io::Error::last_os_error()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_answers_are_errors_or_silence_never_panics() {
        let mut whole = request();
        whole.extend([0; 24]);
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            for claimed in [0_u32, 15, 16, 36, 60, u32::MAX] {
                if let Some(head) = cut.get_mut(..4) {
                    head.copy_from_slice(&claimed.to_ne_bytes());
                }
                let _ = parse(&cut, &mut Vec::new());
            }
        }
    }

    #[test]
    fn a_kernel_error_is_told() {
        let mut bytes = vec![];
        bytes.extend(20_u32.to_ne_bytes());
        bytes.extend(NLMSG_ERROR.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend((-libc::ENOENT).to_ne_bytes());
        let error = parse(&bytes, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn the_kernel_answers_or_says_why_not() {
        match packet_sockets() {
            Ok(_) => {}
            Err(error) => assert!(error.raw_os_error().is_some(), "{error}"),
        }
    }
}
