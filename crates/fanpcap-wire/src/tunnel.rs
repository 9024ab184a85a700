//! Packets that carry another packet, step 9 of the walk.

mod gre;
mod udp;
mod l2tp;
mod wireless;

pub use gre::{Erspan, Gre};
pub use udp::{Geneve, Gtp, Vxlan};

use crate::number::{
    ESP, ETHER_IP, ETHERNET, GRE, IPV4, IPV6, L2TP, MPLS, PORT_CAPWAP, PORT_GENEVE, PORT_GTP_USER,
    PORT_L2TP, PORT_LISP, PORT_MPLS, PORT_TZSP, PORT_VXLAN, PORT_VXLAN_GPE, PORT_VXLAN_OLD, UDP,
};
use crate::shim::Carried;
use crate::{Ip, Labels, Layers, Udp, untyped};

/// The layers of this packet's content, whether or not the content has an IP packet. `cut` bytes of
/// the frame were not captured.
pub(crate) fn inner<'a>(ip: &Ip<'a>, cut: usize) -> Option<Layers<'a>> {
    let bytes = ip.transport()?;
    match ip.protocol {
        IPV4 => Some(Layers::of_ip(Ip::v4(bytes))),
        IPV6 => Some(Layers::of_ip(Ip::v6(bytes))),
        GRE => ip.gre()?.inner(cut),
        MPLS => of_carried(Labels::of(bytes).carried()?, cut),
        ETHERNET => Some(Layers::of_ethernet(bytes, cut)),
        L2TP => untyped::layers(l2tp::over_ip(bytes)?, cut),
        UDP => in_udp(ip.udp()?, cut),
        _ => None,
    }
}

fn in_udp(udp: Udp<'_>, cut: usize) -> Option<Layers<'_>> {
    let payload = udp.payload();
    match udp.destination() {
        PORT_VXLAN | PORT_VXLAN_OLD => Some(Vxlan::of(payload)?.inner(cut)),
        PORT_GENEVE => Geneve::of(payload)?.inner(cut),
        PORT_GTP_USER => Gtp::of(payload)?.inner(cut),
        PORT_VXLAN_GPE => udp::in_vxlan_gpe(payload, cut),
        PORT_TZSP => Some(Layers::of_ethernet(wireless::in_tzsp(payload)?, cut)),
        _ => in_sessions(udp, cut),
    }
}

/// The layers in a tunnel that the source port or the destination port announces. In such tunnels,
/// answers come from the tunnel's port.
fn in_sessions(udp: Udp<'_>, cut: usize) -> Option<Layers<'_>> {
    let is_at = |port| udp.source() == port || udp.destination() == port;
    if is_at(PORT_CAPWAP) {
        Some(Layers::of_ethernet(
            wireless::in_capwap(udp.payload())?,
            cut,
        ))
    } else if is_at(PORT_L2TP) {
        of_carried(l2tp::over_udp(udp.payload())?, cut)
    } else {
        None
    }
}

/// The name of the packet's tunnel, by its protocol or its ports.
pub(crate) fn name(ip: &Ip<'_>) -> Option<&'static str> {
    Some(match ip.protocol {
        IPV4 | IPV6 => "IP in IP",
        GRE => "GRE",
        ESP => "ESP",
        L2TP => "L2TP",
        MPLS => "MPLS",
        ETHERNET => "Ethernet in IP",
        ETHER_IP => "EtherIP",
        UDP => {
            let ports = ip.ports()?;
            match ports.destination {
                PORT_VXLAN | PORT_VXLAN_OLD => "VXLAN",
                PORT_VXLAN_GPE => "VXLAN-GPE",
                PORT_GENEVE => "Geneve",
                PORT_GTP_USER => "GTP-U",
                PORT_TZSP => "TZSP",
                PORT_MPLS => "MPLS in UDP",
                PORT_LISP => "LISP",
                _ if [ports.source, ports.destination].contains(&PORT_CAPWAP) => "CAPWAP",
                _ if [ports.source, ports.destination].contains(&PORT_L2TP) => "L2TP",
                _ => return None,
            }
        }
        _ => return None,
    })
}

fn of_carried(carried: Carried<'_>, cut: usize) -> Option<Layers<'_>> {
    match carried.untyped() {
        Some(bytes) => untyped::layers(bytes, cut),
        None => carried.typed().map(|(_, ip)| Layers::of_ip(Some(ip))),
    }
}
