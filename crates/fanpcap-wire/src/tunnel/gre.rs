//! GRE (RFC 2784, RFC 2890) and ERSPAN (draft-foschiano-erspan-03).

use super::of_carried;
use crate::number::{
    ETHER_ERSPAN, ETHER_ERSPAN_III, ETHER_ETHERNET, ETHER_IPV4, ETHER_IPV6, ETHER_MPLS,
    ETHER_MPLS_MULTICAST,
};
use crate::{Ip, Labels, Layers};

/// A GRE header of version 0 without routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gre<'a> {
    /// The Ethernet type of the payload.
    pub protocol: u16,
    /// The key.
    pub key: Option<u32>,
    /// The sequence number.
    pub sequence: Option<u32>,
    payload: &'a [u8],
}

const CHECKSUM: u16 = 0x8000;
const ROUTING: u16 = 0x4000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
const VERSION: u16 = 0x0007;

impl<'a> Gre<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (&[a, b, c, d], mut rest) = bytes.split_first_chunk()?;
        let flags = u16::from_be_bytes([a, b]);
        if flags & (ROUTING | VERSION) != 0 {
            return None;
        }
        let mut field = |flag| {
            if flags & flag == 0 {
                return Some(None);
            }
            let (word, behind) = rest.split_first_chunk()?;
            rest = behind;
            Some(Some(u32::from_be_bytes(*word)))
        };
        field(CHECKSUM)?;
        let (key, sequence) = (field(KEY)?, field(SEQUENCE)?);
        Some(Self {
            protocol: u16::from_be_bytes([c, d]),
            key,
            sequence,
            payload: rest,
        })
    }

    /// The frame that a switch has mirrored, with ERSPAN's header.
    pub fn erspan(self) -> Option<Erspan<'a>> {
        match self.protocol {
            ETHER_ERSPAN if self.sequence.is_none() => Some(Erspan::I(self.payload)),
            ETHER_ERSPAN => {
                let (header, frame) = self.payload.split_first_chunk()?;
                Some(Erspan::II(header, frame))
            }
            ETHER_ERSPAN_III => {
                let (header, behind) = self.payload.split_first_chunk::<12>()?;
                // Flag O: a platform-specific subheader of 8 bytes follows.
                let subheader = if header[11] & 1 == 0 { 0 } else { 8 };
                Some(Erspan::III(header, behind.get(subheader..)?))
            }
            _ => None,
        }
    }

    pub(super) fn inner(self, cut: usize) -> Option<Layers<'a>> {
        Some(match self.protocol {
            ETHER_IPV4 => Layers::of_ip(Ip::v4(self.payload)),
            ETHER_IPV6 => Layers::of_ip(Ip::v6(self.payload)),
            ETHER_MPLS | ETHER_MPLS_MULTICAST => {
                of_carried(Labels::of(self.payload).carried()?, cut)?
            }
            ETHER_ETHERNET => Layers::of_ethernet(self.payload, cut),
            _ => Layers::of_ethernet(self.erspan()?.frame(), cut),
        })
    }
}

/// A frame that a switch has mirrored, by the version of the header before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erspan<'a> {
    /// No header, only the frame, after a GRE header without a sequence number.
    I(&'a [u8]),
    /// A header of 8 bytes, and the frame.
    II(&'a [u8; 8], &'a [u8]),
    /// The first 12 bytes of the header, and the frame after the header. With flag O the header has
    /// 8 more bytes.
    III(&'a [u8; 12], &'a [u8]),
}

impl<'a> Erspan<'a> {
    /// The captured bytes of the mirrored frame.
    pub fn frame(self) -> &'a [u8] {
        match self {
            Erspan::I(frame) | Erspan::II(_, frame) | Erspan::III(_, frame) => frame,
        }
    }

    /// The id of the mirroring session, 10 bits.
    pub fn session(self) -> Option<u16> {
        match self {
            Erspan::I(_) => None,
            Erspan::II([_, _, a, b, ..], _) | Erspan::III([_, _, a, b, ..], _) => {
                Some(u16::from_be_bytes([*a, *b]) & 0x03ff)
            }
        }
    }
}
