//! What may stand between Ethernet and IP: PPPoE and MPLS, steps 3 and 4 of the walk.

use crate::{Ip, LABELS_MAX};

const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;

/// PPPoE's header of a session (RFC 2516), and PPP's protocol behind it.
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

    /// PPP's protocol: 0x0021 is IPv4, 0x0057 IPv6.
    pub fn protocol(self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    pub(crate) fn ip(self) -> Option<Ip<'a>> {
        match self.protocol() {
            PPP_IPV4 => Ip::v4(self.payload),
            PPP_IPV6 => Ip::v6(self.payload),
            _ => None,
        }
    }
}

/// One entry of MPLS's label stack (RFC 3032).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(u32);

impl Label {
    /// The label, 20 bits.
    pub fn value(self) -> u32 {
        self.0 >> 12
    }

    /// Whether it is the last one.
    pub fn is_bottom(self) -> bool {
        self.0 & 0x100 != 0
    }
}

/// MPLS labels, from outside to inside, at most [`LABELS_MAX`]; none behind the bottom of the
/// stack.
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

    /// The packet behind the bottom of the stack, by its first nibble.
    pub(crate) fn ip(mut self) -> Option<Ip<'a>> {
        self.by_ref().for_each(drop);
        self.bottom.then(|| Ip::by_version(self.rest))?
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
