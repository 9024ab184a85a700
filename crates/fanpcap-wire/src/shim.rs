//! Headers between Ethernet and IP: PPPoE, MPLS and the network service header, step 4 of the walk.

use crate::{Ip, LABELS_MAX, NSH_MAX};

/// Bytes that may be a packet, by the type that announces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried<'a> {
    V4(&'a [u8]),
    V6(&'a [u8]),
    /// No type says whether the bytes are an IP packet or a frame.
    Untyped(&'a [u8]),
}

impl<'a> Carried<'a> {
    pub(crate) fn typed(self) -> Option<(&'a [u8], Ip<'a>)> {
        match self {
            Self::V4(bytes) => Some((bytes, Ip::v4(bytes)?)),
            Self::V6(bytes) => Some((bytes, Ip::v6(bytes)?)),
            Self::Untyped(_) => None,
        }
    }

    pub(crate) fn untyped(self) -> Option<&'a [u8]> {
        match self {
            Self::Untyped(bytes) => Some(bytes),
            Self::V4(_) | Self::V6(_) => None,
        }
    }
}

pub(crate) fn in_ppp(protocol: u16, payload: &[u8]) -> Option<Carried<'_>> {
    match protocol {
        PPP_IPV4 => Some(Carried::V4(payload)),
        PPP_IPV6 => Some(Carried::V6(payload)),
        _ => None,
    }
}

const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;

/// A PPPoE session header (RFC 2516), and the PPP protocol after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pppoe<'a> {
    header: &'a [u8; 8],
    payload: &'a [u8],
}

impl<'a> Pppoe<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk::<8>()?;
        // Version 1, type 1, code 0: session data.
        header
            .starts_with(&[0x11, 0])
            .then_some(Self { header, payload })
    }

    /// The session's id.
    pub fn session(self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// The PPP protocol: 0x0021 is IPv4, 0x0057 IPv6.
    pub fn protocol(self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    pub(crate) fn carried(self) -> Option<Carried<'a>> {
        in_ppp(self.protocol(), self.payload)
    }
}

/// An entry of an MPLS label stack (RFC 3032).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(u32);

impl Label {
    /// The label, 20 bits.
    pub fn value(self) -> u32 {
        self.0 >> 12
    }

    /// Whether this is the last label.
    pub fn is_bottom(self) -> bool {
        self.0 & 0x100 != 0
    }
}

/// MPLS labels, from outside to inside: at most [`LABELS_MAX`], up to the bottom of the stack.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    rest: &'a [u8],
    left: usize,
    bottom: bool,
}

impl<'a> Labels<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            left: LABELS_MAX,
            bottom: false,
        }
    }

    /// The bytes after the bottom of the stack. No label gives their type.
    pub(crate) fn carried(mut self) -> Option<Carried<'a>> {
        self.by_ref().for_each(drop);
        self.bottom.then_some(Carried::Untyped(self.rest))
    }
}

impl Iterator for Labels<'_> {
    type Item = Label;

    fn next(&mut self) -> Option<Label> {
        if self.bottom {
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let (entry, rest) = self.rest.split_first_chunk()?;
        let label = Label(u32::from_be_bytes(*entry));
        self.rest = rest;
        self.bottom = label.is_bottom();
        Some(label)
    }
}

/// A network service header (RFC 8300) of version 0. Flag O is clear: the packet is not for the
/// maintenance of the protocol itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nsh<'a> {
    header: &'a [u8; 8],
    payload: &'a [u8],
}

impl<'a> Nsh<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let header = bytes.first_chunk::<8>()?;
        let len = usize::from(header[1] & 0x3f) * 4;
        // Version and flag O must be 0.
        let is_read = header[0] & 0xe0 == 0 && (8..=NSH_MAX).contains(&len);
        let payload = is_read.then(|| bytes.get(len..))??;
        Some(Self { header, payload })
    }

    /// Service path id, and service index on this path.
    pub fn path(self) -> (u32, u8) {
        let [_, _, _, _, a, b, c, index] = *self.header;
        (u32::from_be_bytes([0, a, b, c]), index)
    }

    /// The payload, by the next protocol. A frame is treated as untyped payload.
    pub(crate) fn carried(self) -> Option<Carried<'a>> {
        match self.header[3] {
            1 => Some(Carried::V4(self.payload)),
            2 => Some(Carried::V6(self.payload)),
            3 => Some(Carried::Untyped(self.payload)),
            _ => None,
        }
    }
}
