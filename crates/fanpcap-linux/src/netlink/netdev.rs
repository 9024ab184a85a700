//! A device's NAPI instances with their interrupts and threads, and the metadata that its driver
//! offers to XDP programs (linux/netdev.h, Linux 6.8).

use crate::bytes::{u16_at, u32_at};
use crate::netlink::{Question, for_each_attribute, malformed};
use std::io;

/// A NAPI instance, which polls a queue of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Napi {
    /// The kernel's number, unique among all devices.
    pub id: u32,
    /// The number of the NAPI instance's interrupt, if the driver reports it.
    pub irq: Option<u32>,
    /// The number, in the first PID namespace, of the thread that polls. `None` if the device has
    /// no threaded NAPI.
    pub thread: Option<u32>,
}

/// Returns every NAPI instance of a device, in the order of their numbers.
///
/// # Errors
/// `ENOENT` before Linux 6.8, and the errors of the socket calls.
pub fn napis(ifindex: u32) -> io::Result<Vec<Napi>> {
    let mut found = Vec::new();
    list(
        NETDEV_CMD_NAPI_GET,
        NETDEV_A_NAPI_IFINDEX,
        ifindex,
        &mut |attributes| {
            let mut napi = Napi::default();
            for_each_attribute(attributes, |kind, value| match kind {
                NETDEV_A_NAPI_ID => napi.id = u32_at(value, 0).unwrap_or(0),
                NETDEV_A_NAPI_IRQ => napi.irq = u32_at(value, 0),
                NETDEV_A_NAPI_PID => napi.thread = u32_at(value, 0),
                _ => {}
            });
            found.push(napi);
        },
    )?;
    found.sort_unstable_by_key(|napi| napi.id);
    Ok(found)
}

/// Returns, for each receive queue of a device, the number of the queue and the number of its NAPI
/// instance. Leaves out queues whose NAPI instance the driver does not report.
///
/// # Errors
/// As [`napis`].
pub fn receive_queues(ifindex: u32) -> io::Result<Vec<(u32, u32)>> {
    let mut found = Vec::new();
    list(
        NETDEV_CMD_QUEUE_GET,
        NETDEV_A_QUEUE_IFINDEX,
        ifindex,
        &mut |attributes| {
            let (mut queue, mut kind_of, mut napi) = (None, None, None);
            for_each_attribute(attributes, |kind, value| match kind {
                NETDEV_A_QUEUE_ID => queue = u32_at(value, 0),
                NETDEV_A_QUEUE_TYPE => kind_of = u32_at(value, 0),
                NETDEV_A_QUEUE_NAPI_ID => napi = u32_at(value, 0),
                _ => {}
            });
            if let (Some(queue), Some(NETDEV_QUEUE_TYPE_RX), Some(napi)) = (queue, kind_of, napi) {
                found.push((queue, napi));
            }
        },
    )?;
    Ok(found)
}

/// Whether XDP programs can ask a device's driver for the VLAN tag that the device has removed from
/// a frame.
///
/// # Errors
/// As [`napis`], and `ENODEV` when no device has this index.
pub fn tells_vlan_tags(ifindex: u32) -> io::Result<bool> {
    let family = family(FAMILY)?;
    let question = Question {
        protocol: libc::NETLINK_GENERIC,
        asks: family,
        answers: family,
    };
    let ifindex = ifindex.to_ne_bytes();
    let answer = question.get(&request(NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &ifindex))?;
    let mut tells = false;
    for_each_attribute(answer.get(4..).unwrap_or_default(), |kind, value| {
        if kind == NETDEV_A_DEV_XDP_RX_METADATA_FEATURES {
            let features = value.try_into().map_or(0, u64::from_ne_bytes);
            tells = features & NETDEV_XDP_RX_METADATA_VLAN_TAG != 0;
        }
    });
    Ok(tells)
}

fn list(command: u8, key: u16, ifindex: u32, each: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let family = family(FAMILY)?;
    let question = Question {
        protocol: libc::NETLINK_GENERIC,
        asks: family,
        answers: family,
    };
    let body = request(command, key, &ifindex.to_ne_bytes());
    question.list(&body, &mut |payload| {
        each(payload.get(4..)?);
        Some(())
    })
}

/// Returns the number of a generic netlink family.
fn family(name: &[u8]) -> io::Result<u16> {
    let question = Question {
        protocol: libc::NETLINK_GENERIC,
        asks: GENL_ID_CTRL,
        answers: GENL_ID_CTRL,
    };
    let answer = question.get(&request(CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, name))?;
    let mut number = None;
    for_each_attribute(answer.get(4..).unwrap_or_default(), |kind, value| {
        if kind == CTRL_ATTR_FAMILY_ID {
            number = u16_at(value, 0);
        }
    });
    number.ok_or_else(malformed)
}

/// Builds genlmsghdr (command, version, two bytes) and one attribute after it.
fn request(command: u8, key: u16, value: &[u8]) -> Vec<u8> {
    let mut body = vec![command, 1, 0, 0];
    let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(len.to_ne_bytes());
    body.extend(key.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
    body
}

const FAMILY: &[u8] = b"netdev\0";
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_RX_METADATA_FEATURES: u16 = 5;
const NETDEV_XDP_RX_METADATA_VLAN_TAG: u64 = 1 << 2;
const NETDEV_CMD_QUEUE_GET: u8 = 10;
const NETDEV_CMD_NAPI_GET: u8 = 11;
const NETDEV_A_QUEUE_ID: u16 = 1;
const NETDEV_A_QUEUE_IFINDEX: u16 = 2;
const NETDEV_A_QUEUE_TYPE: u16 = 3;
const NETDEV_A_QUEUE_NAPI_ID: u16 = 4;
const NETDEV_QUEUE_TYPE_RX: u32 = 0;
const NETDEV_A_NAPI_IFINDEX: u16 = 1;
const NETDEV_A_NAPI_ID: u16 = 2;
const NETDEV_A_NAPI_IRQ: u16 = 3;
const NETDEV_A_NAPI_PID: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_no_instances() {
        let index = crate::interface::index("lo").unwrap();
        match (napis(index), receive_queues(index)) {
            (Ok(napis), Ok(queues)) => assert!(napis.is_empty() && queues.is_empty()),
            // Kernels before Linux 6.8 do not have the family.
            (Err(error), _) | (_, Err(error)) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
            }
        }
        let none = family(b"fanpcap_none\0").unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::ENOENT));
        assert!(family(b"nlctrl\0").unwrap() == GENL_ID_CTRL);
    }

    #[test]
    fn the_loopback_device_tells_no_tags() {
        let index = crate::interface::index("lo").unwrap();
        match tells_vlan_tags(index) {
            Ok(tells) => assert!(!tells),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT)),
        }
        assert!(tells_vlan_tags(u32::MAX / 2).is_err());
    }
}
