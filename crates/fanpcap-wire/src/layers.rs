//! A frame's layers: link and network.

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
    pub(crate) link: Option<Link<'a>>,
    pub(crate) ip: Option<Ip<'a>>,
    /// Another packet carries it.
    pub(crate) is_inside: bool,
    /// Bytes of the frame that were not captured.
    pub(crate) cut: usize,
}

impl<'a> Layers<'a> {
    /// Those of a frame with its IP packet.
    pub(crate) fn of_framed(link: Link<'a>, ip: Ip<'a>) -> Self {
        Self {
            link: Some(link),
            ip: Some(ip),
            ..Self::default()
        }
    }

    /// Those of an IP packet without a link of its own.
    pub(crate) fn of_ip(ip: Option<Ip<'a>>) -> Self {
        Self {
            ip,
            ..Self::default()
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
}
