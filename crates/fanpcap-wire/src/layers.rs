//! A frame's layers: link and network, and those of the packet inside.

use crate::link::{Link, Tag};
use crate::{Arp, Ip, tunnel, untyped};

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
    /// Bytes of the frame that were not captured.
    cut: usize,
}

impl<'a> Layers<'a> {
    /// Those of a frame that was captured whole.
    pub fn of(frame: &Frame<'a>) -> Self {
        Self::from_link(Link::of(frame.bytes, frame.tag), 0)
    }

    /// Those of a frame of this length on the wire, without the tag beside it.
    pub fn of_cut(frame: &Frame<'a>, length: u32) -> Self {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let cut = length.saturating_sub(frame.bytes.len());
        Self::from_link(Link::of(frame.bytes, frame.tag), cut)
    }

    /// Those of an Ethernet frame inside another packet, or of the frame that it carries without an
    /// IP packet of its own.
    pub(crate) fn of_ethernet(bytes: &'a [u8], cut: usize) -> Self {
        let layers = Self::from_link(Link::of(bytes, None), cut);
        layers.framed().unwrap_or(layers)
    }

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

    fn from_link(link: Option<Link<'a>>, cut: usize) -> Self {
        let carried = link.as_ref().and_then(Link::carried);
        let ip = carried.and_then(|carried| match carried.untyped() {
            Some(bytes) => untyped::ip(bytes, cut),
            None => carried.typed().map(|(_, ip)| ip),
        });
        Self {
            link,
            ip,
            is_inside: false,
            cut,
        }
    }

    /// The layers of the frame behind labels or a service header.
    fn framed(&self) -> Option<Self> {
        let link = self.link.as_ref().filter(|_| self.ip.is_none())?;
        untyped::frame(link.carried()?.untyped()?, self.cut)
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

    /// What carries a packet that the walk does not read, if the innermost packet that it reads says
    /// so: a tunnel, labels, a tag. A packet that carries control messages says the same.
    pub fn unread(&self) -> Option<&'static str> {
        let inner = self.inner();
        let layers = inner.as_ref().unwrap_or(self);
        match &layers.ip {
            Some(ip) => tunnel::name(ip),
            None => layers.link.as_ref()?.carrier(),
        }
    }

    /// The layers of the packet that this one carries: always with an IP packet. What that one
    /// carries is not looked at.
    pub fn inner(&self) -> Option<Layers<'a>> {
        if self.is_inside {
            return None;
        }
        let inner = match &self.ip {
            Some(ip) => ip.inner(self.cut),
            None => self.framed(),
        };
        inner.map(|layers| Self {
            is_inside: true,
            ..layers
        })
    }
}
