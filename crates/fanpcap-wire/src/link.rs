//! Ethernet and its tags: steps 1 to 3 of the walk.

use crate::number::{
    ETHER_ARISTA, ETHER_ARP, ETHER_IPV4, ETHER_IPV6, ETHER_MACSEC, ETHER_MPLS,
    ETHER_MPLS_MULTICAST, ETHER_NSH, ETHER_PPPOE, ETHER_PROVIDER, ETHER_TAG, ETHER_TAG_9200,
    ETHER_TAG_9300, ETHER_TAG_OLD, ETHER_TAG_SERVICE, ETHER_TIME_TAG, ETHER_VN_TAG,
};
use crate::shim::{Carried, Labels, Nsh, Pppoe};
use crate::{Arp, TAGS_BEHIND_MAX, TAGS_MAX};

/// A VLAN tag (IEEE 802.1Q).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The tag's own Ethernet type: 0x8100, 0x88a8, 0x9100, 0x9200 or 0x9300.
    pub tpid: u16,
    /// Control information: priority (3 bits), drop eligible (1), id (12).
    pub tci: u16,
}

impl Tag {
    /// The VLAN's id, 0 to 4095.
    pub fn id(self) -> u16 {
        self.tci & 0x0fff
    }
}

/// The Ethernet header and the tags after it.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    header: &'a [u8; 14],
    beside: Option<Tag>,
    /// The bytes after the header: tags of 4 bytes each, then the payload.
    behind: &'a [u8],
    /// Number of tags in the bytes.
    tags: usize,
    /// The type after all VLAN tags that the walk skips, or the length in 802.3 frames. `None` if
    /// the last tag is cut off.
    pub ether_type: Option<u16>,
    /// The captured bytes after the tags.
    pub payload: &'a [u8],
}

impl<'a> Link<'a> {
    pub(crate) fn of(bytes: &'a [u8], beside: Option<Tag>) -> Option<Self> {
        let (header, behind) = bytes.split_first_chunk::<14>()?;
        let mut link = Self {
            header,
            beside,
            behind,
            tags: 0,
            ether_type: Some(u16::from_be_bytes([header[12], header[13]])),
            payload: behind,
        };
        let left = TAGS_MAX - usize::from(beside.is_some());
        while link.tags < left && link.ether_type.is_some_and(is_tag) {
            let Some((ether_type, payload)) = next_type(link.payload, 2) else {
                link.ether_type = None;
                break;
            };
            link.tags += 1;
            link.ether_type = Some(ether_type);
            link.payload = payload;
        }
        Some(link)
    }

    /// The frame's destination.
    pub fn destination(&self) -> [u8; 6] {
        let [a, b, c, d, e, f, ..] = *self.header;
        [a, b, c, d, e, f]
    }

    /// The frame's source.
    pub fn source(&self) -> [u8; 6] {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header;
        [a, b, c, d, e, f]
    }

    /// The outermost tag.
    pub fn tag(&self) -> Option<Tag> {
        self.tags().next()
    }

    /// The tags, from outside to inside, at most [`TAGS_MAX`].
    pub fn tags(&self) -> impl Iterator<Item = Tag> + use<'a> {
        let mut tpid = u16::from_be_bytes([self.header[12], self.header[13]]);
        let mut rest = self.behind;
        let inside = (0..self.tags).map_while(move |_| {
            let (&[a, b, c, d], behind) = rest.split_first_chunk()?;
            rest = behind;
            let next = u16::from_be_bytes([c, d]);
            Some(Tag {
                tpid: std::mem::replace(&mut tpid, next),
                tci: u16::from_be_bytes([a, b]),
            })
        });
        self.beside.into_iter().chain(inside)
    }

    /// ARP for IPv4 over Ethernet.
    pub fn arp(&self) -> Option<Arp<'a>> {
        (self.ether_type? == ETHER_ARP).then(|| Arp::of(self.payload))?
    }

    /// A PPPoE session header.
    pub fn pppoe(&self) -> Option<Pppoe<'a>> {
        let (ether_type, payload) = self.behind_tags()?;
        (ether_type == ETHER_PPPOE).then(|| Pppoe::of(payload))?
    }

    /// MPLS labels.
    pub fn labels(&self) -> Option<Labels<'a>> {
        let (ether_type, payload) = self.behind_tags()?;
        matches!(ether_type, ETHER_MPLS | ETHER_MPLS_MULTICAST).then(|| Labels::of(payload))
    }

    /// The frame's payload after all tags, and after PPPoE, MPLS labels or a network service
    /// header.
    pub(crate) fn carried(&self) -> Option<Carried<'a>> {
        let (ether_type, payload) = self.behind_tags()?;
        match ether_type {
            ETHER_IPV4 => Some(Carried::V4(payload)),
            ETHER_IPV6 => Some(Carried::V6(payload)),
            ETHER_PPPOE => Pppoe::of(payload)?.carried(),
            ETHER_MPLS | ETHER_MPLS_MULTICAST => Labels::of(payload).carried(),
            ETHER_NSH => Nsh::of(payload)?.carried(),
            _ => None,
        }
    }

    /// The name of a frame's type, if the type can carry packets. Only called for a frame in which
    /// the walk found no IP packet.
    pub(crate) fn carrier(&self) -> Option<&'static str> {
        let ether_type = self.behind_tags().map_or(self.ether_type?, |(it, _)| it);
        Some(match ether_type {
            ETHER_MPLS | ETHER_MPLS_MULTICAST => "MPLS",
            ETHER_NSH => "NSH",
            ETHER_PROVIDER => "802.1ah",
            ETHER_MACSEC => "MACsec",
            ETHER_VN_TAG | ETHER_TIME_TAG | ETHER_ARISTA => "a tag",
            other if is_tag(other) => "a tag",
            _ => return None,
        })
    }

    /// Type and payload after the VLAN tags, a tag of a switch's maker, and at most
    /// [`TAGS_BEHIND_MAX`] VLAN tags after the maker's tag.
    fn behind_tags(&self) -> Option<(u16, &'a [u8])> {
        let ether_type = self.ether_type?;
        let len = match ether_type {
            ETHER_VN_TAG => 4,
            ETHER_TIME_TAG => 6,
            ETHER_ARISTA => arista_len(self.payload)?,
            _ => return Some((ether_type, self.payload)),
        };
        let (mut ether_type, mut payload) = next_type(self.payload, len)?;
        for _ in 0..TAGS_BEHIND_MAX {
            if is_tag(ether_type) {
                (ether_type, payload) = next_type(payload, 2)?;
            }
        }
        Some((ether_type, payload))
    }
}

fn is_tag(ether_type: u16) -> bool {
    matches!(
        ether_type,
        ETHER_TAG | ETHER_TAG_SERVICE | ETHER_TAG_OLD | ETHER_TAG_9200 | ETHER_TAG_9300
    )
}

/// The type after a tag with `len` bytes of content, and the bytes that follow.
fn next_type(bytes: &[u8], len: usize) -> Option<(u16, &[u8])> {
    let (kind, payload) = bytes.get(len..)?.split_first_chunk()?;
    Some((u16::from_be_bytes(*kind), payload))
}

/// The length of Arista's time stamp. The subtype must be 1. The third hex digit of the version is
/// 1 for 64 bits and 2 for 48 bits.
fn arista_len(bytes: &[u8]) -> Option<usize> {
    match bytes.first_chunk()? {
        [0, 1, _, version] if version >> 4 == 1 => Some(4 + 8),
        [0, 1, _, version] if version >> 4 == 2 => Some(4 + 6),
        _ => None,
    }
}
