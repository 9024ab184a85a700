//! The default route: which devices frames for it pass, so that none is flooded by mistake.

use std::collections::BTreeSet;
use std::io;

use fanpcap_linux::link::{self, Link};
use fanpcap_linux::route;

/// The device through which a default route of the calling thread's network namespace leads, if that is
/// the one with index `ifindex` or stands on it: a bridge, bond or VRF that it is a port of, a VLAN on it, and
/// so on upwards. All tables and all next hops count, see [`route::default_devices`].
///
/// # Errors
/// When the kernel does not list its routes or its devices.
pub fn carries_default_route(ifindex: u32) -> io::Result<Option<String>> {
    let links = link::links()?;
    let routes = route::default_devices()?;
    let carried = routes
        .into_iter()
        .find(|&upper| below(upper, &links).contains(&ifindex));
    Ok(carried.map(|upper| {
        let link = links.iter().find(|link| link.index == upper);
        link.map_or_else(|| format!("device {upper}"), |link| link.name.clone())
    }))
}

/// A device and all that it stands on.
fn below(upper: u32, links: &[Link]) -> BTreeSet<u32> {
    let mut all = BTreeSet::from([upper]);
    loop {
        let mut more = BTreeSet::new();
        for link in links {
            if link.master.is_some_and(|master| all.contains(&master)) {
                more.insert(link.index);
            }
            // A veth names its other end there, and an index of another namespace means nothing here.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        // A VLAN on a bridge of a veth, whose other end is elsewhere, and of a bond's port.
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
    fn no_device_carries_nothing() {
        assert_eq!(carries_default_route(u32::MAX).unwrap(), None);
    }
}
