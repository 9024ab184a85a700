//! What carries another packet, step 8 of the walk.

mod gre;
mod udp;

pub use gre::{Erspan, Gre};
pub use udp::{Geneve, Gtp, Vxlan};

use crate::number::{GRE, IPV4, IPV6, PORT_GENEVE, PORT_GTP_USER, PORT_VXLAN, PORT_VXLAN_OLD, UDP};
use crate::{Ip, Layers};

/// The layers of what this packet carries, whether or not there is an IP packet among them.
pub(crate) fn inner<'a>(ip: &Ip<'a>) -> Option<Layers<'a>> {
    match ip.protocol {
        IPV4 => Some(Layers::of_ip(Ip::v4(ip.transport()?))),
        IPV6 => Some(Layers::of_ip(Ip::v6(ip.transport()?))),
        GRE => ip.gre()?.inner(),
        UDP => {
            let udp = ip.udp()?;
            match udp.destination() {
                PORT_VXLAN | PORT_VXLAN_OLD => Some(Vxlan::of(udp.payload())?.inner()),
                PORT_GENEVE => Geneve::of(udp.payload())?.inner(),
                PORT_GTP_USER => Gtp::of(udp.payload())?.inner(),
                _ => None,
            }
        }
        _ => None,
    }
}
