//! Finds the sockets whose device is gone, and the devices for which handles and copies wait.

use std::collections::{BTreeMap, BTreeSet};

use fanpcap_group::roster::RosterEntry;
use fanpcap_group::waiting::Waiting;
use fanpcap_linux::netlink::diag::PacketSocket;
use fanpcap_linux::packet::ETH_P_SILENT;

/// The maximum number of waiting copies.
const COPIES: usize = 256;

/// Who waits for a device that is gone.
pub(crate) struct Gone(Vec<Waiting>);

impl Gone {
    /// Everybody who shows that it waits. Any process may show it, so the socket of a handle must
    /// be unbound and counts once, the device of a copy must not be up (`is_up`), and only
    /// [`COPIES`] copies count.
    pub(crate) fn of(
        mut waiting: Vec<Waiting>,
        seen: &[RosterEntry],
        is_up: impl Fn(&str) -> bool,
    ) -> Self {
        let (mut handles, mut copies) = (BTreeSet::new(), 0..COPIES);
        let is_unbound = |inode: u32| {
            let mut sockets = seen.iter().map(|it| &it.socket);
            sockets.any(|it| it.inode == inode && is_unbound(it))
        };
        waiting.retain(|it| match it.socket {
            Some(inode) => is_unbound(inode) && handles.insert(inode),
            None => !is_up(&it.device) && copies.next().is_some(),
        });
        Self(waiting)
    }

    /// Counts the sockets of handles that wait for their device among those whose device is gone.
    /// Leaves out founders' sockets whose device is gone: they have no meaning any more.
    pub(crate) fn sort(&self, seen: Vec<RosterEntry>) -> Vec<RosterEntry> {
        let sorted = |mut seen: RosterEntry| {
            let socket = &mut seen.socket;
            let is_founders = socket.fanout.is_none() && socket.protocol == ETH_P_SILENT;
            if socket.has_lost_device() && is_founders {
                return None;
            }
            if self.awaited_by(socket.inode).is_some() {
                socket.ifindex = u32::MAX;
            }
            Some(seen)
        };
        seen.into_iter().filter_map(sorted).collect()
    }

    /// The device that the socket's handle waits for.
    pub(crate) fn awaited_by(&self, inode: u32) -> Option<&str> {
        let mut waiting = self.0.iter();
        let found = waiting.find(|it| it.socket == Some(inode))?;
        Some(&found.device)
    }

    /// How many handles and copies wait for each device whose name `is_meant`.
    pub(crate) fn counts(&self, is_meant: impl Fn(&str) -> bool) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for waiting in self.0.iter().filter(|it| is_meant(&it.device)) {
            *counts.entry(waiting.device.clone()).or_default() += 1;
        }
        counts
    }
}

/// The text about members that wait for this device, which is gone.
pub fn members_wait(device: &str, count: usize) -> String {
    match count {
        1 => format!("{device} (gone): 1 member waits"),
        _ => format!("{device} (gone): {count} members wait"),
    }
}

/// Whether a socket has a ring and is bound to nothing. Only the socket of a handle that waits for
/// its device stays so (`fanpcap_linux::packet::renew`).
fn is_unbound(socket: &PacketSocket) -> bool {
    let is_bound = socket.ifindex != 0 || socket.protocol != 0 || socket.fanout.is_some();
    !is_bound && socket.ring.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn a_handle_waits_that_is_unbound_and_shows_it() {
        let seen = [
            entry(1, 0, 0, true),
            entry(2, 0, 0, false),
            entry(3, 5, 3, true),
            entry(4, u32::MAX, ETH_P_SILENT, false),
            // A handle that is not bound yet.
            entry(5, 0, 0, true),
            entry(6, 0, 0, true),
        ];
        let all = [
            ("eth0", Some(1)),
            ("eth0", Some(2)),
            ("eth0", Some(3)),
            ("eth0", None),
            ("eth1", Some(6)),
            ("eth1", Some(7)),
            // Names that others may have made.
            ("eth2", Some(6)),
            ("up0", None),
        ];
        let all = all.map(|(device, socket)| Waiting {
            device: device.to_owned(),
            socket,
        });
        let gone = Gone::of(all.into(), &seen, |device| device == "up0");
        let sorted = gone.sort(seen.to_vec()).into_iter();
        let sockets: Vec<_> = sorted
            .map(|it| (it.socket.inode, it.socket.ifindex))
            .collect();
        let lost = u32::MAX;
        assert_eq!(sockets, [(1, lost), (2, 0), (3, 5), (5, 0), (6, lost)]);
        let counts = gone.counts(|_| true);
        assert_eq!((counts["eth0"], counts["eth1"], counts.len()), (2, 1, 2));
        assert_eq!(gone.counts(|name| name == "eth1").len(), 1);
        let copy = Waiting {
            device: "eth3".to_owned(),
            socket: None,
        };
        let many = Gone::of(vec![copy; 10_000], &seen, |_| false);
        assert_eq!(many.counts(|_| true)["eth3"], COPIES);
        assert_eq!(
            [1, 5, 6].map(|it| gone.awaited_by(it)),
            [Some("eth0"), None, Some("eth1")]
        );
    }
}
