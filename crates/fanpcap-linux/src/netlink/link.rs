//! Network devices by rtnetlink: MTU, counters, and the peer of a pair (linux/if_link.h,
//! linux/net_namespace.h).
//!
//! This module does not use sysfs, because sysfs shows the devices of the namespace in which it was
//! mounted. It does not use `/proc/net/dev`, because that file adds up several causes of drops.

use crate::bytes::{text, u16_at, u32_at};
use crate::interface;
use crate::netlink::{Question, for_each_attribute, malformed};
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A device of the calling thread's network namespace at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Interface index.
    pub index: u32,
    /// The device's name.
    pub name: String,
    /// The hardware type, `ARPHRD_*` (linux/if_arp.h).
    pub hardware: u16,
    /// `IFF_*`.
    pub flags: u32,
    /// The MTU in bytes: the longest frame without its link-layer header.
    pub mtu: u32,
    /// The hardware address, such as `02:00:00:00:00:01`; empty if the device has none.
    pub address: String,
    /// The device's kind, such as `veth`; empty for most hardware.
    pub kind: String,
    /// The index of the bridge, bond, team or VRF that has the device as a port.
    pub master: Option<u32>,
    /// The index of the other device of a pair, or of the device below this device.
    pub peer: Option<u32>,
    /// This namespace's number for the peer's namespace, if the peer is in another namespace.
    pub peer_namespace: Option<i32>,
    /// How many users of the device, such as packet sockets, have made it promiscuous. If the
    /// number is not 0, the device receives frames for all addresses.
    pub promiscuity: u32,
    /// The most segments that the kernel passes to the device as one packet; 0 if the kernel does
    /// not report the number.
    pub gso_max_segs: u32,
    /// The device's XDP program; `None` if the device has no XDP program.
    pub xdp: Option<XdpProgram>,
    /// The device's counters.
    pub counters: Counters,
}

impl Link {
    /// Whether the device is up (`IFF_UP`).
    pub fn is_up(&self) -> bool {
        self.flags & IFF_UP != 0
    }

    /// Why the device gets no packets, in words behind its name; `None` if it may get some.
    pub fn silence(&self) -> Option<&'static str> {
        match (self.flags & IFF_UP, self.flags & IFF_RUNNING) {
            (0, _) => Some("is down"),
            (_, 0) => Some("has no link"),
            _ => None,
        }
    }
}

/// A device's XDP program (`IFLA_XDP`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpProgram {
    /// The kernel's id of the BPF program. If the device has several BPF programs, this is the id
    /// of the BPF program in the driver.
    pub program: u32,
    /// The place at which the device runs the BPF program: see [`xdp_mode`].
    pub mode: u8,
}

/// Values of [`XdpProgram::mode`].
pub mod xdp_mode {
    /// In the network stack.
    pub const GENERIC: u8 = 2;
    /// In the hardware.
    pub const HARDWARE: u8 = 3;
}

/// The counters of a device (`struct rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that arrived.
    pub rx_packets: u64,
    /// Packets that left.
    pub tx_packets: u64,
    /// Bytes that arrived.
    pub rx_bytes: u64,
    /// Bytes that left.
    pub tx_bytes: u64,
    /// Packets that arrived with an error of any kind.
    pub rx_errors: u64,
    /// Packets that arrived and were dropped by the kernel or the driver.
    pub rx_dropped: u64,
    /// Packets that the kernel or the driver dropped before the device sent them.
    pub tx_dropped: u64,
    /// Packets that overran the device's FIFO. In some drivers, other counters include these
    /// packets.
    pub rx_fifo: u64,
    /// Packets that the device dropped because it had no room for them.
    pub rx_missed: u64,
}

const LINKS: Question = Question {
    protocol: libc::NETLINK_ROUTE,
    asks: 18,    // RTM_GETLINK
    answers: 16, // RTM_NEWLINK
};
const NAMESPACES: Question = Question {
    protocol: libc::NETLINK_ROUTE,
    asks: 90,    // RTM_GETNSID
    answers: 88, // RTM_NEWNSID
};

/// Returns the device with this index.
///
/// # Errors
/// `ENODEV` when no device has this index, and the errors of the socket calls.
pub fn get(ifindex: u32) -> io::Result<Link> {
    let mut body = vec![0; 4];
    body.extend(ifindex.to_ne_bytes());
    body.extend([0; 8]);
    link(&LINKS.get(&body)?).ok_or_else(malformed)
}

/// Whether a device with this name exists and is up (`IFF_UP`).
pub fn is_up(name: &str) -> bool {
    find_up(name).is_some()
}

/// Returns the device with this name if it is up.
pub fn find_up(name: &str) -> Option<Link> {
    let link = interface::index(name).and_then(|index| get(index).ok());
    link.filter(Link::is_up)
}

/// linux/if.h.
const IFF_UP: u32 = 1;
const IFF_RUNNING: u32 = 1 << 6;

/// Returns every device of the calling thread's network namespace.
///
/// # Errors
/// The error of the socket calls.
pub fn links() -> io::Result<Vec<Link>> {
    let mut links = Vec::new();
    LINKS.list(&[0; 16], &mut |payload| {
        links.push(link(payload)?);
        Some(())
    })?;
    Ok(links)
}

/// Returns a device and all devices below it. Frames that the device sends may leave the machine
/// through any of these. Below a bridge, bond, team or VRF are its ports. Below a VLAN or a similar
/// device is its lower device.
pub fn below(upper: u32, links: &[Link]) -> BTreeSet<u32> {
    let mut all = BTreeSet::from([upper]);
    loop {
        let mut more = BTreeSet::new();
        for link in links {
            if link.master.is_some_and(|master| all.contains(&master)) {
                more.insert(link.index);
            }
            // A veth's peer is its other end, not a lower device. An index in another namespace is
            // not an index of this namespace.
            let stands = all.contains(&link.index) && link.kind != "veth";
            if stands && link.peer_namespace.is_none() {
                more.extend(link.peer);
            }
        }
        let before = all.len();
        all.extend(more);
        if all.len() == before {
            return all;
        }
    }
}

/// Returns how many packets the device with this index has counted, in both directions. For index
/// 0, returns the sum over all devices.
///
/// # Errors
/// `ENODEV` when no device has this index, and the errors of the socket calls.
pub fn packets(ifindex: u32) -> io::Result<u64> {
    let both = |link: &Link| {
        link.counters
            .rx_packets
            .wrapping_add(link.counters.tx_packets)
    };
    match ifindex {
        0 => Ok(links()?.iter().map(both).fold(0, u64::wrapping_add)),
        _ => get(ifindex).map(|link| both(&link)),
    }
}

/// Returns the number that the calling thread's network namespace has for another namespace. `None`
/// if it has no number for that namespace.
///
/// # Errors
/// The errors of the socket calls.
pub fn namespace_number(namespace: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let mut body = vec![0; 4];
    body.extend(8_u16.to_ne_bytes());
    body.extend(NETNSA_FD.to_ne_bytes());
    body.extend(namespace.as_raw_fd().to_ne_bytes());
    let payload = NAMESPACES.get(&body)?;
    let mut number = None;
    for_each_attribute(payload.get(4..).unwrap_or_default(), |kind, value| {
        if kind == NETNSA_NSID {
            number = u32_at(value, 0).map(signed);
        }
    });
    Ok(number.filter(|&number| number >= 0))
}

/// Parses ifinfomsg (family, type, index, flags, change) and the attributes after it.
fn link(payload: &[u8]) -> Option<Link> {
    let mut link = Link {
        hardware: u16_at(payload, 2)?,
        index: u32_at(payload, 4)?,
        flags: u32_at(payload, 8)?,
        ..Link::default()
    };
    for_each_attribute(payload.get(16..)?, |kind, value| match kind {
        IFLA_IFNAME => link.name = text(value),
        IFLA_ADDRESS => link.address = address(value),
        IFLA_MTU => link.mtu = u32_at(value, 0).unwrap_or(0),
        IFLA_MASTER => link.master = u32_at(value, 0).filter(|&master| master != 0),
        IFLA_LINK => link.peer = u32_at(value, 0).filter(|&peer| peer != 0),
        IFLA_LINK_NETNSID => link.peer_namespace = u32_at(value, 0).map(signed),
        IFLA_LINKINFO => for_each_attribute(value, |kind, value| match kind {
            IFLA_INFO_KIND => link.kind = text(value),
            // For a VXLAN device, the kernel reports the lower device only here.
            IFLA_INFO_DATA if link.kind == "vxlan" => for_each_attribute(value, |kind, value| {
                if kind == IFLA_VXLAN_LINK {
                    link.peer = u32_at(value, 0).filter(|&peer| peer != 0);
                }
            }),
            _ => {}
        }),
        IFLA_PROMISCUITY => link.promiscuity = u32_at(value, 0).unwrap_or(0),
        IFLA_GSO_MAX_SEGS => link.gso_max_segs = u32_at(value, 0).unwrap_or(0),
        IFLA_XDP => link.xdp = xdp(value),
        IFLA_STATS64 => link.counters = counters(value),
        _ => {}
    });
    Some(link)
}

fn xdp(value: &[u8]) -> Option<XdpProgram> {
    let mut found = XdpProgram::default();
    for_each_attribute(value, |kind, value| match kind {
        IFLA_XDP_ATTACHED => found.mode = value.first().copied().unwrap_or(0),
        IFLA_XDP_PROG_ID => found.program = u32_at(value, 0).unwrap_or(0),
        // If the device has several BPF programs, the driver's BPF program comes first.
        IFLA_XDP_DRV_PROG_ID | IFLA_XDP_SKB_PROG_ID | IFLA_XDP_HW_PROG_ID if found.program == 0 => {
            found.program = u32_at(value, 0).unwrap_or(0);
        }
        _ => {}
    });
    Some(found).filter(|found| found.mode != 0)
}

fn counters(value: &[u8]) -> Counters {
    let number = |place: usize| {
        let bytes = value.get(8 * place..8 * place + 8);
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_ne_bytes)
    };
    Counters {
        rx_packets: number(0),
        tx_packets: number(1),
        rx_bytes: number(2),
        tx_bytes: number(3),
        rx_errors: number(4),
        rx_dropped: number(6),
        tx_dropped: number(7),
        rx_fifo: number(14),
        rx_missed: number(15),
    }
}

fn signed(number: u32) -> i32 {
    i32::from_ne_bytes(number.to_ne_bytes())
}

fn address(value: &[u8]) -> String {
    let mut text = String::new();
    for byte in value {
        if !text.is_empty() {
            text.push(':');
        }
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(digit.into(), 16));
        }
    }
    text
}

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VXLAN_LINK: u16 = 3;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_is_told() {
        let index = crate::interface::index("lo").unwrap();
        let link = get(index).unwrap();
        assert_eq!(link.name, "lo");
        assert!(link.mtu > 0);
        assert_eq!(link.address, "00:00:00:00:00:00");
        assert_eq!(address(&[0x2, 0xfe]), "02:fe");
        assert_eq!((link.hardware, link.master), (libc::ARPHRD_LOOPBACK, None));
        assert_ne!(link.flags & libc::IFF_LOOPBACK.unsigned_abs(), 0);
        assert_eq!(
            get(u32::MAX / 2).unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
    }

    #[test]
    fn every_device_is_listed_with_its_counters() {
        let links = links().unwrap();
        let lo = links.iter().find(|link| link.name == "lo").unwrap();
        assert_eq!(Some(lo.index), crate::interface::index("lo"));
        assert!(lo.counters.rx_bytes >= lo.counters.rx_packets);
        let both = lo.counters.rx_packets + lo.counters.tx_packets;
        let all = packets(0).unwrap();
        assert!(packets(lo.index).unwrap() >= both && all >= both);
        assert!(packets(u32::MAX / 2).is_err());
    }

    fn device(index: u32, kind: &str, master: Option<u32>, peer: Option<u32>) -> Link {
        Link {
            index,
            kind: kind.to_owned(),
            master,
            peer,
            ..Link::default()
        }
    }

    #[test]
    fn ports_and_lower_devices_carry_what_is_above_them() {
        // A VLAN on a bridge. The bridge has two ports: a veth, whose other end is in another
        // namespace, and a bond.
        let links = [
            device(1, "vlan", None, Some(2)),
            device(2, "bridge", None, None),
            device(3, "veth", Some(2), Some(9)),
            device(4, "bond", Some(2), None),
            device(5, "", Some(4), None),
            device(6, "", None, None),
        ];
        assert_eq!(below(1, &links), BTreeSet::from([1, 2, 3, 4, 5]));
        assert_eq!(below(6, &links), BTreeSet::from([6]));
        assert_eq!(below(4, &links), BTreeSet::from([4, 5]));
    }

    #[test]
    fn words_are_taken_from_their_places() {
        let stats: Vec<u8> = (0_u64..24).flat_map(u64::to_ne_bytes).collect();
        let Counters {
            rx_bytes,
            rx_missed,
            ..
        } = counters(&stats);
        assert_eq!((rx_bytes, rx_missed), (2, 15));
        assert_eq!(counters(&stats[..100]).rx_missed, 0);
    }
}
