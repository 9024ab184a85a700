//! A frame's layers: link and network, and those of the packet inside.

use crate::link::{Link, Tag};
use crate::{Arp, Ip};

/// A frame as it was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What was captured of it, from Ethernet on.
    pub bytes: &'a [u8],
    /// The tag that the kernel took out of it and keeps beside it.
    pub tag: Option<Tag>,
}

/// What one walk has found: of a frame, or of the packet that one carries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Layers<'a> {
    link: Option<Link<'a>>,
    ip: Option<Ip<'a>>,
    /// Another packet carries it.
    is_inside: bool,
}

impl<'a> Layers<'a> {
    /// Those of a frame.
    pub fn of(frame: &Frame<'a>) -> Self {
        Self::from_link(Link::of(frame.bytes, frame.tag))
    }

    /// Those of an Ethernet frame inside another packet.
    pub(crate) fn of_ethernet(bytes: &'a [u8]) -> Self {
        Self::from_link(Link::of(bytes, None))
    }

    /// Those of an IP packet without a link of its own.
    pub(crate) fn of_ip(ip: Option<Ip<'a>>) -> Self {
        Self {
            ip,
            ..Self::default()
        }
    }

    fn from_link(link: Option<Link<'a>>) -> Self {
        let ip = link.as_ref().and_then(Link::ip);
        Self {
            link,
            ip,
            is_inside: false,
        }
    }

    /// Ethernet and its tags. An IP packet inside another has none.
    pub fn link(&self) -> Option<&Link<'a>> {
        self.link.as_ref()
    }

    /// The IP packet, behind tags, labels and PPPoE.
    pub fn ip(&self) -> Option<&Ip<'a>> {
        self.ip.as_ref()
    }

    /// The Ethernet type behind all tags.
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

    /// The layers of the packet that this one carries: always with an IP packet. What that one
    /// carries is not looked at.
    pub fn inner(&self) -> Option<Layers<'a>> {
        let ip = self.ip.as_ref().filter(|_| !self.is_inside)?;
        ip.inner().map(|layers| Self {
            is_inside: true,
            ..layers
        })
    }
}
