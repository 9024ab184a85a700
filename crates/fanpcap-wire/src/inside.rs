//! Finds the packet in a frame, and the packet that this packet carries.

use crate::link::Link;
use crate::{Frame, Layers, tunnel, untyped};

impl<'a> Layers<'a> {
    /// The layers of a frame that was captured whole.
    pub fn of(frame: &Frame<'a>) -> Self {
        Self::from_link(Link::of(frame.bytes, frame.tag), 0)
    }

    /// The layers of a frame that had `length` bytes on the wire. `length` does not include the tag
    /// that the kernel keeps beside the frame.
    pub fn of_cut(frame: &Frame<'a>, length: u32) -> Self {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let cut = length.saturating_sub(frame.bytes.len());
        Self::from_link(Link::of(frame.bytes, frame.tag), cut)
    }

    /// The layers of an Ethernet frame inside another packet. If the frame has no IP packet but
    /// carries a frame, returns the layers of the carried frame.
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

    fn framed(&self) -> Option<Self> {
        let link = self.link.as_ref().filter(|_| self.ip.is_none())?;
        untyped::frame(link.carried()?.untyped()?, self.cut)
    }

    /// The name of a carrier (tunnel, labels or tag) that the innermost packet announces, and whose
    /// content the walk does not read. For a tunnel's control messages, the tunnel's name, too.
    pub fn unread(&self) -> Option<&'static str> {
        let inner = self.inner();
        let layers = inner.as_ref().unwrap_or(self);
        match &layers.ip {
            Some(ip) => tunnel::name(ip),
            None => layers.link.as_ref()?.carrier(),
        }
    }

    /// The layers of the packet that this one carries. These layers always include an IP packet.
    /// The walk does not search for packets deeper inside.
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
