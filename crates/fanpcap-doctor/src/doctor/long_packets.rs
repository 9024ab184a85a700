//! Finds out whether the host sends long packets, which leave the device in several frames
//! (segmentation offload).

use fanpcap_linux::netlink::host_use;
use fanpcap_linux::netlink::link::{self, Link};

use super::finding::word;

/// The command that makes the host's TCP send packets of the wire's length through a device. No
/// other setting helps: the XDP engine captures the host's packets before they are segmented.
/// `None` if neither the host nor a container uses the device, or if the settings are already made.
pub(crate) fn cut(ifindex: u32, links: &[Link]) -> Option<String> {
    host_use::of(ifindex).ok()??;
    command(ifindex, links)
}

/// The command for all devices whose settings concern packets that leave through the given device.
/// TCP obeys the settings of the device that the route names. This can be a bridge or bond above
/// the given device, or a VLAN on it.
fn command(ifindex: u32, links: &[Link]) -> Option<String> {
    let is_sender = |it: &&Link| link::below(it.index, links).contains(&ifindex);
    let uncut = links
        .iter()
        .filter(is_sender)
        .filter(|it| it.gso_max_segs > 1);
    let set = |it: &Link| {
        let (name, size) = (word(&it.name), it.mtu + ETHERNET);
        format!("ip link set {name} gso_max_segs 1 gso_max_size {size}")
    };
    let all: Vec<String> = uncut.map(set).collect();
    (!all.is_empty()).then(|| all.join(" && "))
}

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    fn device(index: u32, name: &str, kind: &str) -> Link {
        Link {
            index,
            name: name.to_owned(),
            kind: kind.to_owned(),
            mtu: 1500,
            gso_max_segs: 65_535,
            ..Link::default()
        }
    }

    #[test]
    fn all_devices_that_the_host_sends_by_are_set() {
        let links = [
            device(1, "lo", ""),
            Link {
                master: Some(3),
                ..device(2, "eth0", "")
            },
            device(3, "bond0", "bond"),
            Link {
                peer: Some(3),
                mtu: 9000,
                ..device(4, "bond0.7", "vlan")
            },
            // Two devices that are not above eth0: its veth peer, and a VLAN whose lower device has
            // the same index as eth0, but in another namespace.
            Link {
                peer: Some(2),
                ..device(5, "veth5", "veth")
            },
            Link {
                peer: Some(2),
                peer_namespace: Some(0),
                ..device(6, "vlan6", "vlan")
            },
        ];
        let set = "gso_max_segs 1 gso_max_size";
        let expected = format!(
            "ip link set eth0 {set} 1514 && ip link set bond0 {set} 1514 && ip link set bond0.7 {set} 9014"
        );
        assert_eq!(command(2, &links), Some(expected));
        let mut cut = links.clone();
        for link in &mut cut {
            link.gso_max_segs = 1;
        }
        assert_eq!(command(2, &cut), None);
        cut[2].gso_max_segs = 2;
        assert_eq!(
            command(2, &cut),
            Some(format!("ip link set bond0 {set} 1514"))
        );
    }
}
