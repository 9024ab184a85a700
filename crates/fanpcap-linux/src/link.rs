//! The devices of the network namespace and what they have counted, by rtnetlink: sysfs would tell of the namespace
//! in which it was mounted, and `/proc/net/dev` adds up causes (linux/rtnetlink.h, linux/if_link.h).

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A device of the calling thread's network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What it has counted of arriving packets.
    pub counters: Counters,
}

/// What a device has counted of arriving packets since it was made (`struct rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that arrived.
    pub packets: u64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Packets with an error of any kind.
    pub errors: u64,
    /// Packets that arrived and were dropped by the kernel or the driver, `rx_dropped`.
    pub dropped: u64,
    /// Packets that overran the device's FIFO; drivers differ in whether others count them too.
    pub fifo: u64,
    /// Packets that the device had no room for, `rx_missed_errors`.
    pub missed: u64,
}

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const IFLA_IFNAME: u16 = 3;
const IFLA_STATS64: u16 = 23;
/// Bits of an attribute's type that are flags (linux/netlink.h, `NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Bytes of `struct nlmsghdr`, and of `struct ifinfomsg`.
const HEADER_LEN: usize = 16;
/// The kernel fills a datagram of a dump up to 32 KiB at most.
const ANSWER_LEN: usize = 32 * 1024;

/// Lists the devices of the calling thread's network namespace.
///
/// # Errors
/// What the socket calls said.
pub fn links() -> io::Result<Vec<Link>> {
    let netlink = open()?;
    send(&netlink, &request())?;
    let mut links = Vec::new();
    let mut answer = vec![0; ANSWER_LEN];
    loop {
        let len = receive(&netlink, &mut answer)?;
        if parse(&answer[..len], &mut links)? {
            return Ok(links);
        }
    }
}

/// nlmsghdr (length, type, NLM_F_REQUEST | NLM_F_DUMP, sequence, port), then ifinfomsg: any device.
fn request() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(32);
    bytes.extend(32_u32.to_ne_bytes());
    bytes.extend(RTM_GETLINK.to_ne_bytes());
    bytes.extend((0x0001_u16 | 0x0300).to_ne_bytes());
    bytes.extend([0; 24]);
    bytes
}

/// Reads one datagram of the dump into `links`; true when the dump is complete.
fn parse(mut bytes: &[u8], links: &mut Vec<Link>) -> io::Result<bool> {
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
            Some(RTM_NEWLINK) => links.push(link(payload).ok_or_else(malformed)?),
            _ => {}
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// ifinfomsg (family, type, index, flags, change), then attributes.
fn link(payload: &[u8]) -> Option<Link> {
    let mut link = Link {
        index: u32_at(payload, 4)?,
        name: String::new(),
        counters: Counters::default(),
    };
    let mut rest = payload.get(HEADER_LEN..)?;
    while let Some(len) = u16_at(rest, 0).map(usize::from) {
        let attribute = rest.get(..len).filter(|_| len >= 4)?;
        match u16_at(attribute, 2)? & TYPE_MASK {
            IFLA_IFNAME => {
                let name = attribute[4..].split(|&byte| byte == 0).next()?;
                link.name = String::from_utf8_lossy(name).into_owned();
            }
            IFLA_STATS64 => link.counters = counters(&attribute[4..])?,
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(link)
}

/// rtnl_link_stats64: words of 64 bits, of which these are the receiving ones.
fn counters(stats: &[u8]) -> Option<Counters> {
    let word = |index: usize| {
        let bytes = stats.get(index * 8..index * 8 + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    Some(Counters {
        packets: word(0)?,
        bytes: word(2)?,
        errors: word(4)?,
        dropped: word(6)?,
        fifo: word(14)?,
        missed: word(15)?,
    })
}

fn error_of(payload: &[u8]) -> io::Error {
    u32_at(payload, 0).map_or_else(malformed, |code| {
        let code = i32::from_ne_bytes(code.to_ne_bytes());
        io::Error::from_raw_os_error(code.wrapping_neg())
    })
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "malformed rtnetlink answer")
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: socket(2) takes plain numbers.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
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
    fn the_loopback_device_is_listed_with_its_counters() {
        let links = links().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert_eq!(Some(lo.index), crate::interface::index("lo"));
        assert!(lo.counters.bytes >= lo.counters.packets);
    }

    #[test]
    fn words_are_taken_from_their_places() {
        let stats: Vec<u8> = (0_u64..24).flat_map(u64::to_ne_bytes).collect();
        let expected = Counters {
            packets: 0,
            bytes: 2,
            errors: 4,
            dropped: 6,
            fifo: 14,
            missed: 15,
        };
        assert_eq!(counters(&stats), Some(expected));
        assert_eq!(counters(&stats[..100]), None);
    }

    #[test]
    fn truncated_answers_are_errors_or_silence_never_panics() {
        let mut whole = request();
        whole[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
        whole.extend([
            8, 0, 3, 0, b'l', b'o', 0, 0, 12, 0, 23, 0, 1, 2, 3, 4, 5, 6, 7, 8,
        ]);
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            for claimed in [0_u32, 15, 16, 32, 40, 52, u32::MAX] {
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
        bytes.extend((-libc::EPERM).to_ne_bytes());
        let error = parse(&bytes, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
    }
}
