//! Finds the sockets whose device is gone, and the device for which handles wait.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::path::Path;

use fanpcap_group::roster::RosterEntry;
use fanpcap_linux::netlink::diag::PacketSocket;
use fanpcap_linux::packet::ETH_P_SILENT;

use crate::snapshot::{Device, Socket};

/// What the previous look has shown.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    /// The inodes of the unbound sockets.
    unbound: BTreeSet<u32>,
    /// A socket was unbound for the first time.
    has_new: bool,
    /// The devices on which a process captures, by process ID. While a socket of the process has
    /// lost its device, this includes the lost device.
    devices: BTreeMap<u32, BTreeSet<String>>,
}

impl Gone {
    /// Counts the sockets of handles that wait for their device among those whose device is gone.
    /// Leaves out founders' sockets whose device is gone: they have no meaning any more.
    ///
    /// A handle that waits is unbound at this look and the previous one. A handle that is not
    /// bound yet is unbound at one of them: every libpcap binds a handle as soon as it has made the
    /// ring.
    pub(crate) fn sort(&mut self, seen: Vec<RosterEntry>) -> Vec<RosterEntry> {
        let unbound = seen.iter().map(|it| &it.socket);
        let unbound = unbound.filter(|it| it.ifindex == 0 && is_unbound(it));
        let unbound: BTreeSet<u32> = unbound.map(|it| it.inode).collect();
        let earlier = mem::replace(&mut self.unbound, unbound);
        self.has_new = !self.unbound.is_subset(&earlier);
        let sorted = |mut seen: RosterEntry| {
            let socket = &mut seen.socket;
            let is_founders = socket.fanout.is_none() && socket.protocol == ETH_P_SILENT;
            if socket.has_lost_device() && is_founders {
                return None;
            }
            if self.unbound.contains(&socket.inode) && earlier.contains(&socket.inode) {
                socket.ifindex = u32::MAX;
            }
            Some(seen)
        };
        seen.into_iter().filter_map(sorted).collect()
    }

    /// Whether the last look had sockets of which only another look shows whether they wait for
    /// their device.
    pub(crate) fn may_wait(&self) -> bool {
        self.has_new
    }

    /// Notes on which devices processes capture.
    pub(crate) fn note_devices(&mut self, devices: &[Device], sockets: &[Socket]) {
        let has_lost = |it: &&Socket| it.ifindex == u32::MAX || self.unbound.contains(&it.inode);
        let losers: BTreeSet<u32> = sockets.iter().filter(has_lost).filter_map(pid).collect();
        let shown: BTreeSet<u32> = sockets.iter().filter_map(pid).collect();
        // A source for one device does not list a socket that is unbound for the first time.
        let is_hidden = |pid: &u32| !shown.contains(pid) && is_alive(*pid);
        self.devices
            .retain(|pid, _| losers.contains(pid) || is_hidden(pid));
        for device in devices.iter().filter(|it| it.counters.is_some()) {
            let here = sockets.iter().filter(|it| it.ifindex == device.ifindex);
            for pid in here.filter_map(pid) {
                let of_process = self.devices.entry(pid).or_default();
                of_process.insert(device.name.clone());
            }
        }
    }

    /// The device for which handles wait; `None` if it is not known, or if they wait for several
    /// devices. `links` are the names of all devices that exist.
    pub(crate) fn awaited(&self, links: &BTreeSet<&str>, sockets: &[Socket]) -> Option<String> {
        let waiting = sockets.iter().filter(|it| it.waits_for_device);
        let mut names = waiting.map(|it| self.only_lost(pid(it)?, links));
        let first = names.next()??;
        names
            .all(|other| other == Some(first))
            .then(|| first.into())
    }

    /// The device that the process has lost, if it has lost one only.
    fn only_lost(&self, pid: u32, links: &BTreeSet<&str>) -> Option<&str> {
        let names = self.devices.get(&pid)?.iter().map(String::as_str);
        let mut lost = names.filter(|name| !links.contains(name));
        lost.next().filter(|_| lost.next().is_none())
    }
}

/// The text about members that wait for their device, which is gone. `awaited` is the device's
/// name, if it is known.
pub fn members_wait(count: usize, awaited: Option<&str>) -> String {
    let device = match awaited {
        Some(awaited) => format!("{awaited} (gone)"),
        None => "gone".to_owned(),
    };
    match count {
        1 => format!("{device}: 1 member waits"),
        _ => format!("{device}: {count} members wait"),
    }
}

/// Whether a socket has a ring and is bound to nothing. Only the socket of a handle that waits for
/// its device stays so (`fanpcap_linux::packet::renew`).
pub(crate) fn is_unbound(socket: &PacketSocket) -> bool {
    socket.protocol == 0 && socket.fanout.is_none() && socket.ring.is_some()
}

fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn pid(socket: &Socket) -> Option<u32> {
    socket.process.as_ref()?.pid
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use fanpcap_linux::netlink::diag::Geometry;

    fn entry(inode: u32, ifindex: u32, protocol: u16, has_ring: bool) -> RosterEntry {
        let ring = Geometry {
            block_size: 4096,
            block_count: 1,
            frame_size: 2048,
            frame_count: 2,
            retire: 0,
        };
        let socket = PacketSocket {
            inode,
            ifindex,
            protocol,
            is_running: false,
            fanout: None,
            version: 2,
            user: 0,
            ring: has_ring.then_some(ring),
        };
        RosterEntry {
            socket,
            page: None,
            founds: None,
            is_placeholder: false,
        }
    }

    /// A process's sockets, by the indices of their devices.
    fn sockets(pid: u32, devices: &[u32]) -> Vec<Socket> {
        let of = |&ifindex: &u32| Socket {
            ifindex,
            waits_for_device: ifindex == u32::MAX,
            ..fixture::member(7, pid, fixture::counts(0, 0, 0))
        };
        devices.iter().map(of).collect()
    }

    #[test]
    fn a_handle_waits_that_is_unbound_at_two_looks() {
        let mut gone = Gone::default();
        let founder = entry(4, u32::MAX, ETH_P_SILENT, false);
        let mut look = |seen: &[RosterEntry]| -> (Vec<(u32, u32)>, bool) {
            let sorted = gone.sort(seen.to_vec()).into_iter();
            let sockets = sorted.map(|it| (it.socket.inode, it.socket.ifindex));
            (sockets.collect(), gone.may_wait())
        };
        let (waits, sends) = (entry(1, 0, 0, true), entry(2, 0, 0, false));
        let starts = entry(3, 0, 0, true);
        assert_eq!(look(&[starts, sends.clone()]), (vec![(3, 0), (2, 0)], true));
        let bound = entry(3, 5, 3, true);
        let seen = [waits.clone(), sends.clone(), bound.clone(), founder];
        assert_eq!(look(&seen), (vec![(1, 0), (2, 0), (3, 5)], true));
        let seen = [waits, sends, bound];
        assert_eq!(look(&seen), (vec![(1, u32::MAX), (2, 0), (3, 5)], false));
    }

    #[test]
    fn the_awaited_device_is_the_one_that_is_no_link() {
        let mut gone = Gone::default();
        let devices = [(2, "eth0"), (3, "eth1")];
        let devices = devices.map(|(index, name)| fixture::device(index, name, [0; 4]));
        let mut look = |links: &[usize], sockets: &[Socket]| {
            let devices: Vec<Device> = links.iter().map(|&at| devices[at].clone()).collect();
            gone.note_devices(&devices, sockets);
            let links = devices.iter().map(|it| it.name.as_str()).collect();
            gone.awaited(&links, sockets)
        };
        // One process on two devices.
        assert_eq!(look(&[0, 1], &sockets(9, &[2, 3])), None);
        for _ in 0..2 {
            let awaited = look(&[1], &sockets(9, &[u32::MAX, 3]));
            assert_eq!(awaited.as_deref(), Some("eth0"));
        }
        let both = sockets(9, &[u32::MAX, u32::MAX]);
        assert_eq!(look(&[], &both), None);
        assert_eq!(
            look(&[0], &sockets(9, &[2, u32::MAX])).as_deref(),
            Some("eth1")
        );
        // Two processes that wait for the same device, and for two.
        let each = |one: &[u32], other: &[u32]| [sockets(9, one), sockets(8, other)].concat();
        assert_eq!(look(&[0, 1], &each(&[2], &[2, 3])), None);
        let awaited = look(&[1], &each(&[u32::MAX], &[u32::MAX, 3]));
        assert_eq!(awaited.as_deref(), Some("eth0"));
        assert_eq!(look(&[0, 1], &each(&[2], &[3])), None);
        assert_eq!(look(&[], &each(&[u32::MAX], &[u32::MAX])), None);
        // A source for one device, which is gone. It lists no socket at the first look.
        let own = std::process::id();
        assert_eq!(look(&[0], &sockets(own, &[2])), None);
        assert_eq!(look(&[], &[]), None);
        let awaited = look(&[], &sockets(own, &[u32::MAX]));
        assert_eq!(awaited.as_deref(), Some("eth0"));
        // A process of which nothing was seen before.
        assert_eq!(look(&[], &sockets(5, &[u32::MAX])), None);
    }
}
