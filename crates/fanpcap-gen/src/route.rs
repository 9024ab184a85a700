//! Finds the devices that carry the default route, so that no user floods them by mistake.

use std::collections::BTreeSet;
use std::io;

use fanpcap_linux::netlink::{
    link::{self, Link},
    route,
};

/// A device through which a default route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Carrier {
    /// The device's name.
    pub(crate) name: String,
    /// Whether the carrier is the queried device or above it: a bridge, bond or VRF above its
    /// ports, or a VLAN above its device. Otherwise the queried device is above the carrier, or
    /// both devices are above a common device: VLANs, macvlans, ipvlans, macsec.
    pub(crate) is_above: bool,
}

/// The device of a default route in the calling thread's network namespace, if frames of device
/// `ifindex` may leave through it. The function looks at all routing tables and all next hops, see
/// [`route::default_devices`]. For a tunnel, it is unknown through which device the packets leave.
///
/// # Errors
/// The kernel does not list its routes or its devices.
pub(crate) fn carries_default_route(ifindex: u32) -> io::Result<Option<Carrier>> {
    let links = link::links()?;
    let routes = route::default_devices()?;
    Ok(carrier(ifindex, &routes, &links).map(|(index, is_above)| {
        let link = links.iter().find(|link| link.index == index);
        let name = link.map_or_else(|| format!("device {index}"), |link| link.name.clone());
        Carrier { name, is_above }
    }))
}

/// Picks a device of the default routes, and whether it is above the device `ifindex`.
fn carrier(ifindex: u32, routes: &BTreeSet<u32>, links: &[Link]) -> Option<(u32, bool)> {
    let own = link::below(ifindex, links);
    let reach = routes
        .iter()
        .map(|&device| (device, link::below(device, links)));
    let mut shared = reach
        .filter(|(_, reach)| !reach.is_disjoint(&own))
        .map(|(device, reach)| (device, reach.contains(&ifindex)));
    let first = shared.next()?;
    // Prefer a device above `ifindex`: for the user, this is the simplest explanation.
    let above = shared.find(|(_, is_above)| *is_above);
    Some(above.filter(|_| !first.1).unwrap_or(first))
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
    fn what_stands_on_a_carrier_or_beside_it_sends_by_it() {
        // Two VLANs and a macvlan on a bond; a separate device; a macvlan of a device in another
        // namespace.
        let mut foreign = device(7, "macvlan", None, Some(3));
        foreign.peer_namespace = Some(0);
        let links = [
            device(1, "vlan", None, Some(3)),
            device(2, "vlan", None, Some(3)),
            device(3, "bond", None, None),
            device(4, "", Some(3), None),
            device(5, "macvlan", None, Some(2)),
            device(6, "", None, None),
            foreign,
        ];
        let carrier =
            |ifindex, routes: &[u32]| carrier(ifindex, &routes.iter().copied().collect(), &links);
        assert_eq!(carrier(5, &[2]), Some((2, false)));
        assert_eq!(carrier(1, &[2]), Some((2, false)));
        assert_eq!(carrier(1, &[3]), Some((3, false)));
        assert_eq!(carrier(4, &[2]), Some((2, true)));
        assert_eq!(carrier(3, &[3, 5]), Some((3, true)));
        assert_eq!(carrier(1, &[1, 2]), Some((1, true)));
        assert_eq!(carrier(2, &[1, 2]), Some((2, true)));
        assert_eq!(carrier(6, &[1]), None);
        assert_eq!(carrier(7, &[3]), None);
    }

    #[test]
    fn no_device_carries_nothing() {
        assert_eq!(carries_default_route(u32::MAX).unwrap(), None);
    }
}
