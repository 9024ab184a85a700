//! Tunnels in UDP: VXLAN (RFC 7348) and its generic extension (draft-ietf-nvo3-vxlan-gpe), Geneve
//! (RFC 8926), GTP-U (3GPP TS 29.281).

use super::of_carried;
use crate::number::{ETHER_ETHERNET, ETHER_IPV4, ETHER_IPV6};
use crate::shim::Nsh;
use crate::{GTP_EXTENSIONS_MAX, Ip, Layers, untyped};

/// A VXLAN header with a valid network id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vxlan<'a> {
    header: &'a [u8; 8],
    payload: &'a [u8],
}

impl<'a> Vxlan<'a> {
    /// The header at the start of a UDP payload.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk::<8>()?;
        (header[0] & 0x08 != 0).then_some(Self { header, payload })
    }

    /// Network id, 24 bits.
    pub fn vni(self) -> u32 {
        vni(self.header)
    }

    pub(super) fn inner(self, cut: usize) -> Layers<'a> {
        Layers::of_ethernet(self.payload, cut)
    }
}

/// Bits of the version, and flag O (maintenance). The walk reads no header in which one of these
/// bits is set.
const GPE_UNREAD: u8 = 0x31;
/// Flag P: the header has a next protocol.
const GPE_NEXT: u8 = 0x04;

/// The layers of VXLAN-GPE's content; `bytes` is the UDP payload.
pub(super) fn in_vxlan_gpe(bytes: &[u8], cut: usize) -> Option<Layers<'_>> {
    let (&[flags, _, _, next, ..], payload) = bytes.split_first_chunk::<8>()?;
    if flags & GPE_UNREAD != 0 {
        return None;
    }
    match if flags & GPE_NEXT == 0 { 3 } else { next } {
        1 => Some(Layers::of_ip(Ip::v4(payload))),
        2 => Some(Layers::of_ip(Ip::v6(payload))),
        3 => Some(Layers::of_ethernet(payload, cut)),
        4 => of_carried(Nsh::of(payload)?.carried()?, cut),
        _ => None,
    }
}

/// A Geneve header of version 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geneve<'a> {
    header: &'a [u8; 8],
    payload: &'a [u8],
}

impl<'a> Geneve<'a> {
    /// The header at the start of a UDP payload.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let (header, behind) = bytes.split_first_chunk::<8>()?;
        let options = usize::from(header[0] & 0x3f) * 4;
        let payload = behind.get(options..)?;
        (header[0] >> 6 == 0).then_some(Self { header, payload })
    }

    /// Network id, 24 bits.
    pub fn vni(self) -> u32 {
        vni(self.header)
    }

    /// The Ethernet type of the payload.
    pub fn protocol(self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    pub(super) fn inner(self, cut: usize) -> Option<Layers<'a>> {
        match self.protocol() {
            ETHER_ETHERNET => Some(Layers::of_ethernet(self.payload, cut)),
            ETHER_IPV4 => Some(Layers::of_ip(Ip::v4(self.payload))),
            ETHER_IPV6 => Some(Layers::of_ip(Ip::v6(self.payload))),
            _ => None,
        }
    }
}

fn vni(header: &[u8; 8]) -> u32 {
    u32::from_be_bytes([0, header[4], header[5], header[6]])
}

/// A GTP-U header of version 1, in a message that carries a user's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gtp<'a> {
    header: &'a [u8; 8],
    payload: &'a [u8],
}

/// Version 1, protocol type GTP.
const GTP_USER: u8 = 0x30;
const GTP_VERSION_AND_TYPE: u8 = 0xf0;
const GTP_EXTENSION: u8 = 0x04;
const GTP_OPTIONAL: u8 = 0x07;
/// Message type: a user's packet.
const GTP_PACKET: u8 = 255;

impl<'a> Gtp<'a> {
    /// The header at the start of a UDP payload.
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let (header, behind) = bytes.split_first_chunk::<8>()?;
        let flags = header[0];
        if flags & GTP_VERSION_AND_TYPE != GTP_USER || header[1] != GTP_PACKET {
            return None;
        }
        let payload = if flags & GTP_OPTIONAL == 0 {
            behind
        } else {
            let (&[_, _, _, next], rest) = behind.split_first_chunk()?;
            // Without flag E the field has no meaning.
            let next = if flags & GTP_EXTENSION == 0 { 0 } else { next };
            behind_extensions(next, rest)?
        };
        Some(Self { header, payload })
    }

    /// The tunnel's endpoint id.
    pub fn teid(self) -> u32 {
        let [_, _, _, _, teid @ ..] = *self.header;
        u32::from_be_bytes(teid)
    }

    pub(super) fn inner(self, cut: usize) -> Option<Layers<'a>> {
        untyped::layers(self.payload, cut)
    }
}

/// The bytes after the extension headers. Each extension header begins with its length in units of
/// 4 bytes, and ends with the type of the next extension header.
fn behind_extensions(mut next: u8, mut bytes: &[u8]) -> Option<&[u8]> {
    for _ in 0..GTP_EXTENSIONS_MAX {
        if next == 0 {
            return Some(bytes);
        }
        let len = usize::from(*bytes.first()?) * 4;
        // No extension header has length 0, so each has a last byte.
        next = *bytes.get(len.checked_sub(1)?)?;
        bytes = bytes.get(len..)?;
    }
    (next == 0).then_some(bytes)
}
