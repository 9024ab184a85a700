//! Whether the host or a container may need the packets that a device receives.

use std::fs;
use std::io;

use super::link::{self, Link};
use super::{Question, address, for_each_attribute, route};
use crate::bpf;
use crate::bytes::u32_at;

const NEIGHBOURS: Question = Question {
    protocol: libc::NETLINK_ROUTE,
    asks: 30,    // RTM_GETNEIGH
    answers: 28, // RTM_NEWNEIGH
};

const QDISCS: Question = Question {
    protocol: libc::NETLINK_ROUTE,
    asks: 38,    // RTM_GETQDISC
    answers: 36, // RTM_NEWQDISC
};

/// Returns why packets that the device receives may be for the host or for a container. `None` for
/// a device that is used only for capturing.
///
/// # Errors
/// The kernel's error.
pub fn of(ifindex: u32) -> io::Result<Option<&'static str>> {
    let links = link::links()?;
    let own = links.iter().find(|link| link.index == ifindex);
    let has_master = own.is_some_and(|own| own.master.is_some());
    // A veth's peer is its other end, not a lower device.
    let stands = |it: &Link| it.peer == Some(ifindex) && it.peer_namespace.is_none();
    let is_below = links.iter().any(|it| it.kind != "veth" && stands(it));
    Ok(match () {
        () if address::has_address(ifindex)? => Some("it has an IP address"),
        () if has_master || is_below => Some("another device is on top of it"),
        () if route::has_route(ifindex)? => Some("a route leads through it"),
        () if receives_for_others(ifindex)? => Some("a container's device may be on top of it"),
        () if own.is_some_and(|own| has_pppoe(&own.name)) => Some("a PPPoE session uses it"),
        () if has_ingress(ifindex)? => Some("traffic control may redirect what it receives"),
        () => None,
    })
}

/// Whether the device receives frames for other hardware addresses besides its own. The reason can
/// be a macvlan or ipvlan on the device, in any network namespace.
fn receives_for_others(ifindex: u32) -> io::Result<bool> {
    let mut found = false;
    let mut body = [0; 12];
    body[0] = PF_BRIDGE;
    // ndmsg: family, padding, index (at 4), state (at 8), flags, type; then attributes.
    NEIGHBOURS.list(&body, &mut |payload| {
        let is_own = u32_at(payload, 4)? == ifindex && payload.get(10)? & NTF_SELF != 0;
        for_each_attribute(payload.get(12..)?, |kind, value| {
            let is_unicast = value.first().is_some_and(|first| first & 1 == 0);
            found |= is_own && kind == NDA_LLADDR && is_unicast;
        });
        Some(())
    })?;
    Ok(found)
}

/// Whether the device has traffic-control filters or BPF programs for received packets. They can be
/// the only sign that the device is used: the host's end of a container's veth may have no route,
/// no address and no bridge.
fn has_ingress(ifindex: u32) -> io::Result<bool> {
    let mut found = bpf::has_ingress_programs(ifindex);
    // tcmsg: family, padding, index (at 4), handle, parent (at 12), info.
    let listed = QDISCS.list(&[0; 20], &mut |payload| {
        found |= u32_at(payload, 4)? == ifindex && u32_at(payload, 12)? == TC_H_INGRESS;
        Some(())
    });
    match listed {
        // A kernel without CONFIG_NET_SCHED has no qdiscs.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(found),
        listed => listed.map(|()| found),
    }
}

/// Whether a PPPoE session of the network namespace uses the device. Reads the kernel's list of
/// sessions, because a session's ppp device does not show which device the session uses.
fn has_pppoe(name: &str) -> bool {
    // The file is missing if the kernel's module is not loaded.
    let sessions = fs::read_to_string("/proc/thread-self/net/pppoe").unwrap_or_default();
    is_listed(&sessions, name)
}

/// Whether a session uses the device `name`. `sessions` has a title, and then a line for each
/// session: number, address, device (drivers/net/ppp/pppoe.c, `pppoe_seq_show`).
fn is_listed(sessions: &str, name: &str) -> bool {
    let mut sessions = sessions.lines().skip(1);
    sessions.any(|line| line.split_whitespace().last() == Some(name))
}

/// The parent of the qdiscs `ingress` and `clsact`.
const TC_H_INGRESS: u32 = 0xffff_fff1;
const PF_BRIDGE: u8 = 7;
const NTF_SELF: u8 = 2;
const NDA_LLADDR: u16 = 2;

#[cfg(test)]
mod tests {
    #[test]
    fn a_pppoe_session_names_its_device() {
        let sessions = "Id       Address              Device\n\
                        00000100 02:00:5e:10:00:01     eth1\n";
        let found = ["eth1", "eth", "eth11", "Device"].map(|name| super::is_listed(sessions, name));
        assert_eq!(found, [true, false, false, false]);
        assert!(!super::is_listed("", "eth1"));
    }

    #[test]
    fn the_loopback_device_is_the_hosts_and_one_that_is_not_there_is_nobodys() {
        let index = crate::interface::index("lo").unwrap();
        assert!(super::of(index).unwrap().is_some());
        assert_eq!(super::of(u32::MAX / 2).unwrap(), None);
    }
}
