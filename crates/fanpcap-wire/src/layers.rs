//! A frame's layers: link and network.

use crate::link::{Link, Tag};
use crate::{Arp, Ip};

/// A captured frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The captured bytes, from the Ethernet header on.
    pub bytes: &'a [u8],
    /// The tag that the kernel removed from the frame and stores separately.
    pub tag: Option<Tag>,
}

/// The layers that one walk found: the layers of a frame, or the layers of a packet inside another
/// packet (`is_inside`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Layers<'a> {
    pub(crate) link: Option<Link<'a>>,
    pub(crate) ip: Option<Ip<'a>>,
    pub(crate) is_inside: bool,
    pub(crate) cut: usize,
}

impl<'a> Layers<'a> {
    /// The layers of a frame that carries this IP packet.
    pub(crate) fn of_framed(link: Link<'a>, ip: Ip<'a>) -> Self {
        Self {
            link: Some(link),
            ip: Some(ip),
            ..Self::default()
        }
    }

    /// The layers of an IP packet without a link layer of its own.
    pub(crate) fn of_ip(ip: Option<Ip<'a>>) -> Self {
        Self {
            ip,
            ..Self::default()
        }
    }

    /// Ethernet header and tags; `None` for an IP packet that another packet carries without a
    /// frame.
    pub fn link(&self) -> Option<&Link<'a>> {
        self.link.as_ref()
    }

    /// The IP packet, after tags, labels and PPPoE.
    pub fn ip(&self) -> Option<&Ip<'a>> {
        self.ip.as_ref()
    }

    /// The Ethernet type after all tags.
    pub fn ether_type(&self) -> Option<u16> {
        self.link.as_ref()?.ether_type
    }

    /// The outermost tag.
    pub fn tag(&self) -> Option<Tag> {
        self.link.as_ref()?.tag()
    }

    /// ARP for IPv4 over Ethernet.
    pub fn arp(&self) -> Option<Arp<'a>> {
        self.link.as_ref()?.arp()
    }
}
