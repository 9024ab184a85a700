//! How a walk goes from a frame to the packet inside, and to the packet that this one carries.

use crate::link::Link;
use crate::{Frame, Layers, tunnel, untyped};

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

    /// What carries a packet that the walk does not read, if the innermost packet that it reads
    /// says so: a tunnel, labels, a tag. A packet that carries control messages says the same.
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
