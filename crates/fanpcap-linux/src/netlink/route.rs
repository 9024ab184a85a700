//! Routes by rtnetlink, and the devices of the default routes (linux/rtnetlink.h, linux/nexthop.h).

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::bytes::{u16_at, u32_at};
use crate::netlink::link;
use crate::netlink::{Question, for_each_attribute};

const ROUTES: Question = Question {
    protocol: libc::NETLINK_ROUTE,
    asks: 26,    // RTM_GETROUTE
    answers: 24, // RTM_NEWROUTE
};
const NEXTHOPS: Question = Question {
    protocol: libc::NETLINK_ROUTE,
    asks: 106,    // RTM_GETNEXTHOP
    answers: 104, // RTM_NEWNEXTHOP
};

/// Returns the indices of the devices of the default routes of IPv4 and IPv6, in the calling
/// thread's network namespace. Includes all routing tables, and all next hops of a route. Routes to
/// very large prefixes count as default routes, because in practice 0.0.0.0/1 and 2000::/3 are used
/// as default routes.
///
/// # Errors
/// The errors of the socket calls and of the kernel.
pub fn default_devices() -> io::Result<BTreeSet<u32>> {
    devices(false)
}

/// Whether a route of the calling thread's network namespace leads through the device `ifindex`.
/// Routes to link-local addresses do not count, because every device that is up has such routes.
///
/// # Errors
/// As [`default_devices`].
pub fn has_route(ifindex: u32) -> io::Result<bool> {
    devices(true).map(|devices| devices.contains(&ifindex))
}

fn devices(all: bool) -> io::Result<BTreeSet<u32>> {
    let mut found = Found {
        all,
        ..Found::default()
    };
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut body = [0; 12];
        body[0] = u8::try_from(family).unwrap_or(0);
        ROUTES.list(&body, &mut |payload| found.route(payload))?;
    }
    if !found.nexthops.is_empty() {
        let mut hops = Nexthops::default();
        NEXTHOPS.list(&[0; 8], &mut |payload| hops.add(payload))?;
        for &hop in &found.nexthops {
            found.devices.extend(hops.devices(hop));
        }
    }
    Ok(found.devices)
}

/// Whether the frames of a default route may pass through the device `ifindex`: it is the route's
/// device, or is below the route's device, as a bridge's port is below the bridge.
///
/// # Errors
/// The kernel's error.
pub fn leads_through(ifindex: u32) -> io::Result<bool> {
    let links = link::links()?;
    let is_below = |&device: &u32| link::below(device, &links).contains(&ifindex);
    Ok(default_devices()?.iter().any(is_below))
}

#[derive(Debug, Default)]
struct Found {
    /// Whether all routes are collected, not only default routes.
    all: bool,
    devices: BTreeSet<u32>,
    nexthops: BTreeSet<u32>,
}

impl Found {
    /// Parses rtmsg (family, lengths of destination and source, service, table, protocol, scope,
    /// type, flags) and the attributes after it.
    fn route(&mut self, payload: &[u8]) -> Option<()> {
        let family = i32::from(*payload.first()?);
        let longest = match family {
            libc::AF_INET => 1,
            libc::AF_INET6 => 3,
            _ => return Some(()),
        };
        // Skips routes of other types, because they reject packets or deliver them locally.
        if *payload.get(7)? != RTN_UNICAST || !self.all && *payload.get(1)? > longest {
            return Some(());
        }
        let mut is_local = false;
        for_each_attribute(payload.get(12..)?, |kind, value| match kind {
            RTA_DST => {
                is_local |= value.starts_with(&[0xfe, 0x80]) || value.starts_with(&[169, 254])
            }
            // The attribute of the destination precedes the attribute of the device.
            _ if is_local => {}
            RTA_OIF => self.devices.extend(u32_at(value, 0)),
            RTA_MULTIPATH => self.hops(value),
            RTA_NH_ID => self.nexthops.extend(u32_at(value, 0)),
            _ => {}
        });
        Some(())
    }

    /// Parses the rtnexthops (length, flags, weight, device), each with its attributes.
    fn hops(&mut self, mut rest: &[u8]) {
        while let (Some(len), Some(device)) = (u16_at(rest, 0), u32_at(rest, 4)) {
            self.devices.insert(device);
            let step = usize::from(len).next_multiple_of(4).max(8);
            rest = rest.get(step..).unwrap_or_default();
        }
    }
}

/// Next-hop objects: the device of each object, or the members of its group.
#[derive(Debug, Default)]
struct Nexthops {
    single: BTreeMap<u32, u32>,
    groups: BTreeMap<u32, Vec<u32>>,
}

impl Nexthops {
    /// Parses nhmsg (family, scope, protocol, flags) and the attributes after it.
    fn add(&mut self, payload: &[u8]) -> Option<()> {
        let (mut id, mut device, mut group) = (None, None, Vec::new());
        for_each_attribute(payload.get(8..)?, |kind, value| match kind {
            NHA_ID => id = u32_at(value, 0),
            // Each member has eight bytes: the number of the next-hop object, and a weight.
            NHA_GROUP => group.extend(value.chunks_exact(8).filter_map(|one| u32_at(one, 0))),
            NHA_OIF => device = u32_at(value, 0),
            _ => {}
        });
        let id = id?;
        self.single.extend(device.map(|device| (id, device)));
        self.groups.insert(id, group);
        Some(())
    }

    /// Returns the devices of the next-hop object `id`. The members of a group are not groups
    /// themselves.
    fn devices(&self, id: u32) -> Vec<u32> {
        let members = self.groups.get(&id).into_iter().flatten();
        members
            .chain([&id])
            .filter_map(|one| self.single.get(one).copied())
            .collect()
    }
}

const RTN_UNICAST: u8 = 1;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_MULTIPATH: u16 = 9;
const RTA_NH_ID: u16 = 30;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_OIF: u16 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [len.to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes
    }

    fn route(family: u8, prefix: u8, kind: u8, attributes: &[u8]) -> BTreeSet<u32> {
        let mut payload = vec![family, prefix, 0, 0, 254, 0, 0, kind, 0, 0, 0, 0];
        payload.extend(attributes);
        let mut found = Found::default();
        found.route(&payload).unwrap();
        assert!(found.nexthops.is_empty());
        found.devices
    }

    #[test]
    fn default_routes_are_known_by_their_length_in_any_table() {
        let through = attribute(RTA_OIF, &7_u32.to_ne_bytes());
        let one = BTreeSet::from([7]);
        assert_eq!(route(2, 0, 1, &through), one);
        assert_eq!(route(10, 0, 1, &through), one);
        assert_eq!(route(2, 1, 1, &through), one);
        assert_eq!(route(10, 3, 1, &through), one);
        for (family, prefix, kind) in [(2, 8, 1), (10, 64, 1), (2, 0, 7), (10, 0, 7), (7, 0, 1)] {
            assert_eq!(route(family, prefix, kind, &through), BTreeSet::new());
        }
    }

    #[test]
    fn other_routes_count_where_all_do_but_for_link_local_ones() {
        let device = attribute(RTA_OIF, &7_u32.to_ne_bytes());
        let counts = |family: u8, prefix: u8, destination: &[u8]| {
            let mut payload = vec![family, prefix, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0];
            payload.extend(attribute(RTA_DST, destination));
            payload.extend(&device);
            let mut found = Found {
                all: true,
                ..Found::default()
            };
            found.route(&payload).unwrap();
            found.devices == BTreeSet::from([7])
        };
        let of_ipv6 = |first: [u8; 2]| [&first[..], &[0; 14]].concat();
        assert!(counts(2, 24, &[10, 1, 2, 0]) && counts(10, 64, &of_ipv6([0x20, 1])));
        assert!(!counts(10, 64, &of_ipv6([0xfe, 0x80])) && !counts(2, 16, &[169, 254, 0, 0]));
    }

    #[test]
    fn every_next_hop_counts() {
        let mut hops = Vec::new();
        for device in [3_u32, 4] {
            hops.extend([16, 0, 0, 0]);
            hops.extend(device.to_ne_bytes());
            hops.extend(attribute(5, &[10, 0, 0, 1]));
        }
        let several = attribute(RTA_MULTIPATH, &hops);
        assert_eq!(route(2, 0, 1, &several), BTreeSet::from([3, 4]));
        for cut in 0..hops.len() {
            route(2, 0, 1, &attribute(RTA_MULTIPATH, &hops[..cut]));
        }
    }

    #[test]
    fn next_hop_objects_lead_to_their_devices() {
        let number = |kind, number: u32| attribute(kind, &number.to_ne_bytes());
        let mut group = Vec::new();
        for member in [1_u32, 2] {
            group.extend(member.to_ne_bytes());
            group.extend([0; 4]);
        }
        let mut hops = Nexthops::default();
        for attributes in [
            [number(NHA_ID, 1), number(NHA_OIF, 11)].concat(),
            [number(NHA_ID, 2), number(NHA_OIF, 12)].concat(),
            [number(NHA_ID, 5), attribute(NHA_GROUP, &group)].concat(),
        ] {
            hops.add(&[vec![0; 8], attributes].concat()).unwrap();
        }
        assert_eq!(hops.devices(1), [11]);
        assert_eq!(hops.devices(5), [11, 12]);
        assert_eq!(hops.devices(9), []);
    }

    #[test]
    fn the_kernel_answers() {
        default_devices().unwrap();
        assert!(!leads_through(u32::MAX).unwrap());
    }
}
